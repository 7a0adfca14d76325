"""Static members (KIP-345), and members of the other group protocol.

Laws: a static member that returns in time gets its partitions back, and no other member notices. Of two processes
with one instance id, the classic protocol ends the first and the new protocol refuses the second, as in Kafka. A
clean close of a static member is not a leave. A group has one type while it has members. A member of the other type
gets an error and affects no member. Once the group is empty, it takes over the group with its offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from e2e.checkers.group_history import Event, Kind, holders, violations
from e2e.harness.clients import CLIENTS
from e2e.harness.cluster import Cluster
from e2e.harness.group import Feed, Group, Variant, all_committed, cluster_for_groups
from e2e.harness.law import keep_in_group

PARTITIONS = 4
SESSION_MS = 30_000
"""Long enough to restart a client within it, even on a busy machine."""
SHORT_SESSION_MS = 6_000

pytestmark = pytest.mark.timeout(300)

BY_NAME = {client.name: client for client in CLIENTS}
COOPERATIVE = "cooperative-sticky"
STATIC_CLASSIC = (
    Variant(client=BY_NAME["confluent"]),
    Variant(client=BY_NAME["java"]),
    Variant(client=BY_NAME["java"], assignor=COOPERATIVE),
)
STATIC_MODERN = (
    Variant(client=BY_NAME["confluent"], protocol="consumer"),
    Variant(client=BY_NAME["java"], protocol="consumer"),
)
CLASSIC = Variant(client=BY_NAME["confluent"])
MODERN = Variant(client=BY_NAME["confluent"], protocol="consumer")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_for_groups(tmp_path_factory.mktemp("members"), PARTITIONS, SESSION_MS) as cluster:
        yield cluster


@contextmanager
def lawful(cluster: Cluster, variant: Variant, topic: str, folder: Path) -> Iterator[Group]:
    """A group whose topic gets records in the block. The last member reads the rest; then the history is checked."""
    variant.client.require()
    variant.client.command()  # is built before time counts
    group = Group(variant, cluster.bootstrap, topic, SESSION_MS, folder)
    feed = Feed(cluster.bootstrap, topic, PARTITIONS)
    try:
        with feed.writing():
            yield group
        group.wait_for("all records", lambda events: all_committed(events, feed.ends))
    finally:
        group.end()
    found = violations(group.events(), feed.ends, group.committed(PARTITIONS), group.gap_max_s)
    keep_in_group(found, group.story())


def named(variants: tuple[Variant, ...]) -> pytest.MarkDecorator:
    """The assignor decides nothing for a static member, so a second one of a client runs only with chaos."""
    return pytest.mark.parametrize(
        "variant",
        [
            pytest.param(
                each, id=each.name, marks=[pytest.mark.chaos] if each.assignor == COOPERATIVE else []
            )
            for each in variants
        ],
    )


def callbacks(group: Group, member: str) -> list[Event]:
    return [
        event
        for event in group.events()
        if event.member == member and event.kind in (Kind.ASSIGNED, Kind.REVOKED)
    ]


def held_by(group: Group, member: str) -> set[int]:
    return {part for part, owners in holders(group.events()).items() if member in owners}


def is_about(code: int, said: str) -> bool:
    """The error as librdkafka's message or as the name of Java's exception."""
    name = KafkaError(code).name().replace("_", "").lower() + "exception"
    return KafkaError(code).str() in said or name in said.lower()


def two_static(group: Group) -> set[int]:
    """The partitions of the first of two static members, once both read."""
    group.join("other", instance="b")
    group.join("first", instance="a")
    group.wait_covered_by(PARTITIONS, "other", "first")
    return held_by(group, "first")


@named(STATIC_CLASSIC)
def test_a_static_member_of_a_classic_group_comes_back_and_nobody_notices(
    cluster: Cluster, variant: Variant, tmp_path: Path
) -> None:
    with lawful(cluster, variant, f"static-{variant.name}", tmp_path) as group:
        mine = two_static(group)
        before = callbacks(group, "other")

        def has_taken_over(name: str) -> None:
            group.wait_covered_by(PARTITIONS, "other", name)
            assert held_by(group, name) == mine, group.story()
            assert callbacks(group, "other") == before, group.story()

        group.kill("first")
        group.join("after a death", instance="a")
        has_taken_over("after a death")
        fatal = group.replace("after a death", by="rival", instance="a")
        assert is_about(KafkaError.FENCED_INSTANCE_ID, fatal), fatal
        has_taken_over("rival")
        group.leave("rival")
        group.session_ms = SHORT_SESSION_MS  # of the next member, so that its session ends soon
        group.join("after a close", instance="a")
        has_taken_over("after a close")
        group.leave("after a close")
        left_s = time.monotonic()
        group.wait_covered_by(PARTITIONS, "other")
        assert time.monotonic() - left_s <= group.bound_s(SHORT_SESSION_MS), "its session has ended"


@named(STATIC_MODERN)
def test_a_static_member_of_the_new_protocol_comes_back_and_nobody_notices(
    cluster: Cluster, variant: Variant, tmp_path: Path
) -> None:
    """KIP-848 gives an instance id to another process only after a clean close or the end of the session."""
    with lawful(cluster, variant, f"static-{variant.name}", tmp_path) as group:
        mine = two_static(group)
        before = callbacks(group, "other")

        def is_refused(name: str) -> None:
            group.join(name, instance="a")
            fatal = group.fatal(name)
            assert is_about(KafkaError.UNRELEASED_INSTANCE_ID, fatal), fatal

        is_refused("rival")
        group.wait_covered_by(PARTITIONS, "other", "first")
        group.leave("first")
        group.join("after a close", instance="a")
        group.wait_covered_by(PARTITIONS, "other", "after a close")
        assert held_by(group, "after a close") == mine, group.story()
        assert callbacks(group, "other") == before, group.story()
        group.kill("after a close")
        is_refused("too early")
        group.wait_covered_by(PARTITIONS, "other")
        group.join("after its session", instance="a")
        group.wait_covered_by(PARTITIONS, "other", "after its session")


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        pytest.param(CLASSIC, MODERN, KafkaError.GROUP_ID_NOT_FOUND, id="classic-to-consumer"),
        pytest.param(MODERN, CLASSIC, KafkaError.INCONSISTENT_GROUP_PROTOCOL, id="consumer-to-classic"),
    ],
)
def test_a_group_changes_its_type_when_it_is_empty_and_goes_on_from_its_offsets(
    cluster: Cluster, first: Variant, second: Variant, refusal: int, tmp_path: Path
) -> None:
    with lawful(cluster, first, f"turned-from-{first.name}", tmp_path) as group:
        group.join("old")
        group.join("old too")
        group.wait_covered_by(PARTITIONS, "old", "old too")
        before = callbacks(group, "old")
        group.join("early", variant=second)
        group.wait_complaint("early", KafkaError(refusal).str())
        group.wait_covered_by(PARTITIONS, "old", "old too")
        assert callbacks(group, "old") == before, group.story()
        group.kill("early")
        group.leave("old too")
        group.leave("old")
        group.join("new", variant=second)
        group.join("new too", variant=second)
        group.wait_covered_by(PARTITIONS, "new", "new too")

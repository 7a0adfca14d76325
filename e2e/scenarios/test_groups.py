"""Every client library in a group of three: one member joins late, one is killed, one leaves cleanly.

Laws: every record is read. No partition has two members between two assignment callbacks. Committed offsets never
decrease. A partition that loses its member has another one within the session timeout and three seconds.

A group mostly waits for a session to end or for the next heartbeat, so several groups run at once. Each has its own
test.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock

import pytest

from e2e.checkers.group_history import violations
from e2e.harness.clients import CLIENTS
from e2e.harness.cluster import Cluster
from e2e.harness.group import Feed, Group, Variant, all_committed, cluster_for_groups
from e2e.harness.law import keep_in_group
from e2e.harness.stories import is_selected, told_at_once

PARTITIONS = 6
SESSION_MS = 6_000
AT_ONCE = 3

pytestmark = pytest.mark.timeout(600)

BY_NAME = {client.name: client for client in CLIENTS}
# The order keeps the three Java variants apart: together they would start nine JVMs.
VARIANTS = (
    Variant(client=BY_NAME["java"], assignor="range"),
    Variant(client=BY_NAME["confluent"], assignor="range"),
    Variant(client=BY_NAME["confluent"], assignor="roundrobin"),
    Variant(client=BY_NAME["confluent"], assignor="cooperative-sticky"),
    Variant(client=BY_NAME["confluent"], protocol="consumer"),
    Variant(client=BY_NAME["kafka-python"], assignor="range"),
    Variant(client=BY_NAME["java"], assignor="cooperative-sticky"),
    Variant(client=BY_NAME["kafka-python"], assignor="cooperative-sticky"),
    Variant(client=BY_NAME["aiokafka"], assignor="roundrobin"),
    Variant(client=BY_NAME["kafkajs"], assignor="roundrobin"),
    Variant(client=BY_NAME["franz-go"], assignor="cooperative-sticky"),
    Variant(client=BY_NAME["franz-go"], protocol="consumer"),
    Variant(client=BY_NAME["java"], protocol="consumer"),
    Variant(client=BY_NAME["sarama"], assignor="range"),
    Variant(client=BY_NAME["kafka-go"], assignor="range"),
    Variant(client=BY_NAME["platformatic"], assignor="roundrobin"),
    Variant(client=BY_NAME["platformatic"], protocol="consumer"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_for_groups(tmp_path_factory.mktemp("groups"), PARTITIONS, SESSION_MS) as cluster:
        yield cluster


BUILDING = Lock()


@pytest.fixture(scope="module")
def stories(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """One run per selected variant."""
    tellers = {
        variant.name: partial(tell, cluster, variant, tmp_path_factory.mktemp(variant.name))
        for variant in VARIANTS
        if is_selected(request, variant.name)
    }
    with told_at_once(tellers, AT_ONCE) as futures:
        yield futures


@pytest.mark.parametrize("variant", [pytest.param(variant, id=variant.name) for variant in VARIANTS])
def test_a_group_of_three_survives_a_late_member_a_killed_one_and_one_that_leaves(
    stories: dict[str, Future[None]], variant: Variant
) -> None:
    variant.client.require()
    stories[variant.name].result()


def tell(cluster: Cluster, variant: Variant, folder: Path) -> None:
    with BUILDING:  # before time counts; several variants share what is built
        variant.client.command()
    topic = f"read-by-{variant.name}"
    group = Group(variant, cluster.bootstrap, topic, SESSION_MS, folder)
    feed = Feed(cluster.bootstrap, topic, PARTITIONS)
    try:
        with feed.writing():
            come_and_go(group)
        group.wait_for("all records", lambda events: all_committed(events, feed.ends))
        group.leave("steady")
    finally:
        group.end()
    found = violations(
        group.events(),
        feed.ends,
        group.committed(PARTITIONS),
        group.gap_max_s,
        resumes=variant.client.resumes,
    )
    keep_in_group(found, group.story())


def come_and_go(group: Group) -> None:
    group.join("steady")
    group.join("killed")
    group.wait_covered_by(PARTITIONS, "steady", "killed")
    group.join("late")
    group.wait_covered_by(PARTITIONS, "steady", "killed", "late")
    group.kill("killed")
    group.wait_covered_by(PARTITIONS, "steady", "late")
    group.leave("late")
    group.wait_covered_by(PARTITIONS, "steady")

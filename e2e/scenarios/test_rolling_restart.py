"""A rolling restart: each instance of each service gets SIGTERM and restarts, one after another, as in an upgrade.

Law: with two instances of each service, no producer sees an error, each acknowledged record exists once and in order,
groups of both protocols read everything and never go back, and admin calls keep working.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafscale.testkit.seaweed import require_weed

from e2e.checkers.group_history import violations
from e2e.harness.clients import CLIENTS
from e2e.harness.creating import Creator
from e2e.harness.deployment import ROLES
from e2e.harness.fleet import NODES, Fleet
from e2e.harness.group import Feed, Group, Variant, all_committed
from e2e.harness.law import goes_on, keep_in_group, under_load

PARTITIONS = 6
SESSION_MS = 30_000
CONFLUENT = next(client for client in CLIENTS if client.name == "confluent")
CLASSIC = Variant(client=CONFLUENT)
MODERN = Variant(client=CONFLUENT, protocol="consumer")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    require_weed()
    env = {
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "1000",
    }
    fleet = Fleet(tmp_path, PARTITIONS, env)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


@contextmanager
def reading(fleet: Fleet, variant: Variant, folder: Path) -> Iterator[Group]:
    """Two members that are fed in the block; after it their whole history is judged."""
    topic = f"read-by-{variant.name}"
    group = Group(variant, fleet.bootstrap, topic, SESSION_MS, folder)
    feed = Feed(fleet.bootstrap, topic, PARTITIONS)
    try:
        with feed.writing():
            group.join("one")
            group.join("two")
            group.wait_covered_by(PARTITIONS, "one", "two")
            yield group
            group.wait_covered_by(PARTITIONS, "one", "two")
        group.wait_for("all records", lambda events: all_committed(events, feed.ends))
    finally:
        group.end()
    found = violations(group.events(), feed.ends, group.committed(PARTITIONS), group.gap_max_s)
    keep_in_group(found, group.story())


def test_each_instance_is_restarted_in_turn_and_no_client_notices(fleet: Fleet, tmp_path: Path) -> None:
    creator = Creator(fleet.bootstrap, "made")
    with (
        under_load(fleet, "rolled", PARTITIONS) as load,
        creator.working(),
        reading(fleet, CLASSIC, tmp_path),
        reading(fleet, MODERN, tmp_path),
    ):
        for role in ROLES:
            for node in NODES:
                fleet.restart(role, node)
                goes_on(load)
                creator.goes_on()

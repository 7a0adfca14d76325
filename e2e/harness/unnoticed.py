"""Clients that must not notice what happens to a fleet: producers, groups of both protocols, and a tool.

Law: with two instances of each service, no producer sees an error, each acknowledged record exists once and in order,
groups of both protocols read everything and never go back, and admin calls keep working.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.checkers.group_history import violations
from e2e.harness.clients import CLIENTS
from e2e.harness.creating import Creator
from e2e.harness.fleet import Fleet
from e2e.harness.group import Feed, Group, Variant, all_committed
from e2e.harness.law import goes_on, keep_in_group, under_load

SESSION_MS = 30_000
CONFLUENT = next(client for client in CLIENTS if client.name == "confluent")
VARIANTS = (Variant(client=CONFLUENT), Variant(client=CONFLUENT, protocol="consumer"))
WRITTEN = "rolled"
"""The topic of the producers."""
SETTINGS = {
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "1000",
}
"""Of the fleet."""


def read_by(variant: Variant) -> str:
    """The topic of a group."""
    return f"read-by-{variant.name}"


TOPICS = (WRITTEN, *map(read_by, VARIANTS))


@contextmanager
def nobody_notices(fleet: Fleet, folder: Path) -> Iterator[Callable[[], None]]:
    """In the block. What it gives waits until every producer and the tool have gone on."""
    creator = Creator(fleet.bootstrap, "made")
    classic, modern = VARIANTS
    with (
        under_load(fleet, WRITTEN, fleet.partitions) as load,
        creator.working(),
        reading(fleet, classic, folder),
        reading(fleet, modern, folder),
    ):

        def go_on() -> None:
            goes_on(load)
            creator.goes_on()

        yield go_on


@contextmanager
def reading(fleet: Fleet, variant: Variant, folder: Path) -> Iterator[Group]:
    """Two members that are fed in the block; after it their whole history is judged."""
    partitions = fleet.partitions
    group = Group(variant, fleet.bootstrap, read_by(variant), SESSION_MS, folder)
    feed = Feed(fleet.bootstrap, group.topic, partitions)
    try:
        with feed.writing():
            group.join("one")
            group.join("two")
            group.wait_covered_by(partitions, "one", "two")
            yield group
            group.wait_covered_by(partitions, "one", "two")
        group.wait_for("all records", lambda events: all_committed(events, feed.ends))
    finally:
        group.end()
    found = violations(group.events(), feed.ends, group.committed(partitions), group.gap_max_s)
    keep_in_group(found, group.story())

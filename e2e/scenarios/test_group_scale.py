"""Coordinators come and go as an operator scales them, 1 to 2 to 5 to 1, under groups that commit.

Laws: no read returns an offset older than an acknowledged commit. At every size, each slot is owned by the coordinator
that rendezvous hashing prefers, so no coordinator is idle. Every member commits at every size. A coordinator that gets
SIGTERM hands over all slots and exits with 0.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from kafscale.storage.coordination import rendezvous
from kafscale.storage.slots import PLACE, SLOTS

from e2e.harness.committing import (
    BEGIN_S,
    STUCK_S,
    System,
    all_commit,
    committing_members,
    living,
    system_of,
    went_back,
)
from e2e.harness.inside import metric
from e2e.harness.law import keep
from e2e.harness.services import STOP_TIMEOUT_S, until

GROUPS = 10
SIZES = ((1,), (1, 2), (1, 2, 3, 4, 5), (5,))
"""The last coordinator is not one of the first."""

pytestmark = pytest.mark.timeout(300)


def wanted(node_ids: Iterable[int]) -> dict[int, int]:
    """node id -> how many slots it should have."""
    nodes = list(node_ids)
    return Counter(rendezvous(PLACE, slot, nodes) for slot in range(SLOTS))


def held(system: System) -> dict[int, int]:
    """What the coordinators say themselves."""
    return {
        node_id: int(sum(metric(service.http, "kafscale_coordinator_slots").values()))
        for node_id, service in system.coordinators.items()
    }


def is_settled(system: System) -> None:
    expected = wanted(system.coordinators)
    assert set(expected) == set(system.coordinators), "none idles"
    until(f"slots are where they belong: {expected}", lambda: held(system) == expected, STUCK_S)


def scale(system: System, *node_ids: int) -> None:
    """Stops all of them at once, as an orchestrator does."""
    gone = [service for each, service in system.coordinators.items() if each not in node_ids]
    new = [each for each in node_ids if each not in system.coordinators]
    for node_id in new:
        system.start_coordinator(node_id)
    for node_id in new:
        system.coordinators[node_id].wait_ready()
    for service in gone:
        service.process.send_signal(signal.SIGTERM)
    assert [service.process.wait(STOP_TIMEOUT_S) for service in gone] == [0] * len(gone)
    system.coordinators = {each: system.coordinators[each] for each in node_ids}
    is_settled(system)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with system_of(tmp_path, SIZES[0][0]) as system:
        yield system


async def test_no_commit_is_lost_while_coordinators_are_scaled_up_and_down(system: System) -> None:
    members = committing_members(system.bootstrap, GROUPS)
    async with living(members):
        await all_commit(members, "every member commits", BEGIN_S)
        for node_ids in SIZES[1:]:
            await asyncio.to_thread(scale, system, *node_ids)
            await all_commit(members, f"every member commits with coordinators {node_ids}", STUCK_S)
    keep(await went_back(members))

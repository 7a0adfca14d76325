"""Coordinators die and pause every few seconds under groups that commit.

Law: no read returns an offset older than an acknowledged commit, whichever coordinator answers. Half a minute after the
last fault every member of every group commits again. There are two coordinators. A killed one restarts at once with its
node id, while its old lease is still valid. Pauses are shorter and longer than the lease.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

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
from e2e.harness.law import keep, nap

GROUPS = 20
COORDINATORS = (1, 2)
FAULT_EVERY_S = 5.0
SHORT, LONG = 1, 3
"""Ticks of a pause: 5 s is within the lease's 8 s; after 15 s another has the slots and has written to them."""
CHAOS_S = float(os.environ.get("CHAOS_S", "120"))


class Deed(NamedTuple):
    """A pause for this number of ticks; without ticks, a kill."""

    node_id: int
    pause_ticks: int = 0


QUICK = (Deed(1, LONG), None, None, None, Deed(2), Deed(1))
"""One pauses while the other serves. It gets its slots back when the other dies, and then dies itself."""


def by_chance(chance: random.Random, for_s: float) -> list[Deed | None]:
    """A random fault of a random instance that is not paused."""
    return [
        Deed(chance.choice(COORDINATORS), chance.choice((0, 0, SHORT, LONG)))
        for _ in range(int(for_s / FAULT_EVERY_S))
    ]


@dataclass(slots=True)
class Chaos:
    """Injects at most one fault per tick; a pause ends some ticks later."""

    system: System
    plan: Sequence[Deed | None]
    paused: dict[int, int] = field(default_factory=dict)  # node id -> ticks left

    def run(self) -> None:
        try:
            for deed in self.plan:
                if deed is not None and deed.node_id not in self.paused:
                    self._do(deed)
                nap(FAULT_EVERY_S)
                self._resume()
        finally:
            self.end()

    def end(self) -> None:
        for node_id in list(self.paused):
            self._go_on(node_id)

    def _do(self, deed: Deed) -> None:
        service = self.system.coordinators[deed.node_id]
        if deed.pause_ticks:
            self.paused[deed.node_id] = deed.pause_ticks
            service.process.send_signal(signal.SIGSTOP)
        else:
            service.kill()
            self.system.start_coordinator(deed.node_id)

    def _resume(self) -> None:
        for node_id in list(self.paused):
            self.paused[node_id] -= 1
            if not self.paused[node_id]:
                self._go_on(node_id)

    def _go_on(self, node_id: int) -> None:
        self.system.coordinators[node_id].process.send_signal(signal.SIGCONT)
        del self.paused[node_id]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with system_of(tmp_path, *COORDINATORS) as system:
        yield system


async def survive(system: System, plan: Sequence[Deed | None], seed: int = 0) -> None:
    members = committing_members(system, GROUPS)
    chaos = Chaos(system, plan)
    async with living(members):
        await all_commit(members, "every member commits", BEGIN_S)
        try:
            await asyncio.to_thread(chaos.run)
            await all_commit(members, f"every member commits again (seed {seed})", STUCK_S)
        finally:
            chaos.end()
    keep(await went_back(members), f"seed {seed}")


@pytest.mark.timeout(400)
async def test_commits_survive_half_a_minute_of_deaths_and_pauses(system: System) -> None:
    await survive(system, QUICK)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
async def test_commits_survive_minutes_of_deaths_and_pauses(system: System) -> None:
    seed = random.SystemRandom().randrange(2**32)
    await survive(system, by_chance(random.Random(seed), CHAOS_S), seed)

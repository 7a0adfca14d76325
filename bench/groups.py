"""Consumer groups: the rebalance time of a large group, and the cost of a thousand small groups that are idle.

`python -m bench.groups` prints the seconds until all of 100 members over 200 partitions are Stable in one
generation (initial delay 0, members that join at once; then one more member that joins a Stable group, whose
members learn of it by heartbeats), and the CPU share of the coordinator (and of the front door, which it shares
its machine with) while 1,000 groups send a heartbeat every 3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.wire.errors import ErrorCode

from bench.cpu import cpu_seconds
from bench.lines import create
from bench.systems import KafScale
from e2e.harness.cluster import Cluster
from e2e.harness.group_members import Classic
from e2e.harness.raw import Wire

MEMBERS = 100
PARTITIONS = 200
GROUPS = 1_000
CONNECTIONS = 50
HEARTBEAT_EVERY_S = 3.0
MEASURE_S = 15.0
STABLE_TIMEOUT_S = 120.0
SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("rebalance", "heartbeats"))
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="kafscale-groups-") as folder:
        system = KafScale(Cluster(data_dir=Path(folder), env=SETTINGS))
        system.start()
        try:
            if only != "heartbeats":
                asyncio.run(rebalances(system))
            if only != "rebalance":
                asyncio.run(heartbeats(system))
        finally:
            system.stop()


@dataclass(slots=True)
class Crowd:
    """Members of one group, and the generation that each is Stable in."""

    group: str
    stable: dict[int, int] = field(default_factory=dict)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def is_stable(self, number: int, generation: int) -> None:
        self.stable[number] = generation
        self.moved.set()

    async def all_stable(self, members: int) -> None:
        async with asyncio.timeout(STABLE_TIMEOUT_S):
            while len(self.stable) < members or len(set(self.stable.values())) > 1:
                self.moved.clear()
                await self.moved.wait()


async def rebalances(system: KafScale) -> None:
    create(system, "wide-group", PARTITIONS)
    crowd = Crowd("crowd")
    wires = [await Wire.open(system.bootstrap) for _ in range(MEMBERS + 1)]
    before = _cpu(system)
    async with asyncio.TaskGroup() as tasks:
        begin = time.monotonic()
        living = [tasks.create_task(_member(wires[n], crowd, n)) for n in range(MEMBERS)]
        await crowd.all_stable(MEMBERS)
        formed = time.monotonic() - begin
        spent = _since(system, before)
        begin = time.monotonic()
        living.append(tasks.create_task(_member(wires[MEMBERS], crowd, MEMBERS)))
        await crowd.all_stable(MEMBERS + 1)
        joined = time.monotonic() - begin
        for task in living:
            task.cancel()
    for wire in wires:
        wire.close()
    print(f"{MEMBERS} members over {PARTITIONS} partitions: Stable after {formed:.2f} s ({_text(spent)})")
    print(f"one more member: Stable after {joined:.2f} s, heartbeats every {HEARTBEAT_EVERY_S:.0f} s")


async def _member(wire: Wire, crowd: Crowd, number: int) -> None:
    """Joins and stays: a heartbeat every 3 s, and a new join after REBALANCE_IN_PROGRESS."""
    member = Classic(wire, crowd.group)
    while True:
        await _until_stable(member)
        crowd.is_stable(number, member.generation)
        error = 0
        while error == ErrorCode.NONE:
            await asyncio.sleep(HEARTBEAT_EVERY_S)
            error = await member.beat()
        assert error == ErrorCode.REBALANCE_IN_PROGRESS, error


async def _until_stable(member: Classic) -> None:
    while True:
        error = await member.join()
        if error == ErrorCode.NONE:
            error, part = await member.sync(_assignments(member.members))
            if error == ErrorCode.NONE:
                assert part, "no partitions"
                return
        assert error in REJOIN, error


def _assignments(members: list[str]) -> dict[str, bytes]:
    """Bytes of the size of a range assignment; the coordinator never opens them."""
    each = 4 * max(PARTITIONS // max(len(members), 1), 1)
    return dict.fromkeys(members, b"\x00" * (20 + each))


async def heartbeats(system: KafScale) -> None:
    wires = [await Wire.open(system.bootstrap) for _ in range(CONNECTIONS)]
    members = [Classic(wires[n % CONNECTIONS], f"idle-{n}") for n in range(GROUPS)]
    begin = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(_until_stable(member))
    print(f"{GROUPS} groups of one member: Stable after {time.monotonic() - begin:.1f} s")
    late: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        beating = [
            tasks.create_task(_beats(member, HEARTBEAT_EVERY_S * n / GROUPS, late))
            for n, member in enumerate(members)
        ]
        await asyncio.sleep(HEARTBEAT_EVERY_S)
        late.clear()
        before, begin = _cpu(system), time.monotonic()
        await asyncio.sleep(MEASURE_S)
        spent, wall = _since(system, before), time.monotonic() - begin
        for task in beating:
            task.cancel()
    for wire in wires:
        wire.close()
    shares = ", ".join(f"{role} {used / wall:.1%}" for role, used in spent.items())
    middle = sorted(late)[len(late) // 2] * 1e3
    print(f"{GROUPS} groups, {len(late) / wall:.0f} heartbeats/s: {shares} of a core; median {middle:.1f} ms")


async def _beats(member: Classic, begin_after_s: float, took: list[float]) -> None:
    await asyncio.sleep(begin_after_s)
    due = time.monotonic()
    while True:
        begin = time.monotonic()
        assert await member.beat() == ErrorCode.NONE
        took.append(time.monotonic() - begin)
        due += HEARTBEAT_EVERY_S
        await asyncio.sleep(max(due - time.monotonic(), 0))


def _cpu(system: KafScale) -> dict[str, float]:
    return {
        role: sum(map(cpu_seconds, system.cluster.pids(role)))
        for role in ("coordinator", "frontdoor", "etcd")
    }


def _since(system: KafScale, before: Mapping[str, float]) -> dict[str, float]:
    return {role: used - before[role] for role, used in _cpu(system).items()}


def _text(spent: Mapping[str, float]) -> str:
    return "CPU s: " + ", ".join(f"{role} {used:.2f}" for role, used in spent.items())


if __name__ == "__main__":
    main()

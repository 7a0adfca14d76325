"""Faults by seed: what happens to processes, to the network between them, to etcd, to the store and to clocks.

Each fault begins, lasts for a while, and ends. Several may last at once. When `run` ends, all have ended.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kafscale.testkit.etcd_model.server import NODE as ETCD

from tools.simulator.store import NODE as STORE
from tools.simulator.store import Rates
from tools.simulator.world import World

EVERY_S: Final = 3.0
LASTS_S: Final = 5.0
"""On average; at most four times as long."""
LASTS_MIN_S: Final = 0.3
AT_ONCE_MAX: Final = 3
SKEW_MS_MAX: Final = 60_000


@dataclass(eq=False)
class Nemesis:
    world: World
    nodes: tuple[str, ...]
    chance: random.Random
    met: Counter[str] = field(default_factory=Counter)
    _down: set[str] = field(default_factory=set)
    _under_way: int = 0

    async def run(self, seconds: float) -> None:
        loop = self.world.loop
        end_s = loop.time() + seconds
        kinds: tuple[tuple[str, Callable[[float], Awaitable[None]]], ...] = (
            ("kill", self.kill),
            ("kill", self.kill),
            ("drain", self.drain),
            ("pause", self.pause),
            ("pause", self.pause),
            ("cut", self.cut),
            ("cut", self.cut),
            ("reset", self.reset),
            ("reset", self.reset),
            ("etcd away", self.etcd_away),
            ("store", self.storm),
            ("store", self.storm),
            ("clock", self.skew),
            ("all killed", self.kill_all),
        )
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.chance.expovariate(1 / EVERY_S))
                lasts_s = min(LASTS_MIN_S + self.chance.expovariate(1 / LASTS_S), 4 * LASTS_S)
                if loop.time() + lasts_s > end_s:
                    await asyncio.sleep(max(0.0, end_s - loop.time()))
                    return
                name, fault = self.chance.choice(kinds)
                if self._under_way < AT_ONCE_MAX:
                    tasks.create_task(self._one(name, fault, lasts_s))

    async def _one(self, name: str, fault: Callable[[float], Awaitable[None]], lasts_s: float) -> None:
        self.met[name] += 1
        self._under_way += 1
        try:
            await fault(lasts_s)
        finally:
            self._under_way -= 1

    def _note(self, text: str) -> None:
        self.world.note(f"** {text}")

    def _up(self) -> str | None:
        """A node whose process is not held by another fault."""
        up = [node for node in self.nodes if node not in self._down]
        return self.chance.choice(up) if up else None

    async def kill(self, lasts_s: float) -> None:
        node = self._up()
        if node is not None:
            self._note(f"{node} is killed, for {lasts_s:.1f} s")
            await self._killed([node], lasts_s)

    async def kill_all(self, lasts_s: float) -> None:
        nodes = [node for node in self.nodes if node not in self._down]
        self._note("all processes are killed")
        await self._killed(nodes, min(lasts_s, 3.0))

    async def _killed(self, nodes: list[str], lasts_s: float) -> None:
        self._down.update(nodes)
        for node in nodes:
            self.world.kill(node)
        await asyncio.sleep(lasts_s)
        for node in nodes:
            self.world.boot(node)
        self._down.difference_update(nodes)

    async def drain(self, _lasts_s: float) -> None:
        node = self._up()
        if node is not None:
            self._note(f"{node} is stopped")
            self.world.stop(node)

    async def pause(self, lasts_s: float) -> None:
        node = self._up()
        if node is None:
            return
        self._note(f"{node} is paused for {lasts_s:.1f} s")
        self._down.add(node)
        self.world.pause(node)
        await asyncio.sleep(lasts_s)
        self.world.resume(node)
        self._down.discard(node)

    async def cut(self, lasts_s: float) -> None:
        one, other = self.chance.sample((*self.nodes, ETCD, ETCD, STORE), 2)
        if one == other:
            return
        self._note(f"{one} and {other} are cut off for {lasts_s:.1f} s")
        self.world.network.cut(one, other)
        await asyncio.sleep(lasts_s)
        self.world.network.heal(one, other)

    async def reset(self, _lasts_s: float) -> None:
        """Requests arrive, and their answers are lost."""
        node = self.chance.choice((*self.nodes, ETCD))
        self._note(f"the connections of {node} break")
        self.world.network.drop_connections(node, "connection reset")

    async def etcd_away(self, lasts_s: float) -> None:
        if ETCD in self._down:
            return
        self._down.add(ETCD)
        self._note(f"etcd has no leader for {lasts_s:.1f} s")
        self.world.etcd.go_away()
        await asyncio.sleep(lasts_s)
        self.world.etcd.come_back()
        self._down.discard(ETCD)

    async def storm(self, lasts_s: float) -> None:
        if STORE in self._down:
            return
        self._down.add(STORE)
        shares = [self.chance.choice((0.0, 0.05, 0.2)) for _ in range(5)]
        self.world.store.rates = Rates(*shares)
        self._note(f"the store fails for {lasts_s:.1f} s: {self.world.store.rates}")
        await asyncio.sleep(lasts_s)
        self.world.store.rates = Rates()
        self._down.discard(STORE)

    async def skew(self, lasts_s: float) -> None:
        node = self.chance.choice(self.nodes)
        skew_ms = self.chance.randint(-SKEW_MS_MAX, SKEW_MS_MAX)
        self._note(f"the clock of {node} is wrong by {skew_ms} ms for {lasts_s:.1f} s")
        instance = self.world.instances[node]
        self.world.skewed.add(node)
        instance.skew_ms = skew_ms
        await asyncio.sleep(lasts_s)
        instance.skew_ms = 0

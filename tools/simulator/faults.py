"""Faults by seed: what happens to processes, to the network between them, to etcd, to the store and to clocks.

A plan lists the faults of a run before it begins: when, what, to whom and for how long. Each kind has chances of its
own, so a new kind changes no other fault of a seed. A fault begins, lasts for a while, and ends; several may last at
once. When `run` ends, all have ended.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.storage.etcd.ops import Compare, Put, Txn
from kafscale.testkit.etcd_model.server import NODE as ETCD

from tools.simulator import store_faults
from tools.simulator.lost_objects import KEYS
from tools.simulator.store import NODE as STORE
from tools.simulator.world import World

LASTS_MIN_S: Final = 0.3
LASTS_MAX: Final = 4
"""Times the mean."""
RESTART_MAX_S: Final = 3.0
"""After all processes were killed."""
AT_ONCE_MAX: Final = 3
SKEW_MS_MAX: Final = 60_000
FREQUENCIES: Final = (0.0, 1.0, 1.0, 2.0)
"""Of a kind in one seed. Runs that lack a fault reach states that it would have prevented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at_s: float
    kind: str
    nodes: tuple[str, ...]
    lasts_s: float
    details: Mapping[str, float] = field(default_factory=dict)


Drawn = tuple[tuple[str, ...], Mapping[str, float]]
"""The nodes that a fault meets, and its details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    share: float
    """How many begin in the mean time between two faults."""
    draw: Callable[[random.Random, tuple[str, ...]], Drawn]
    """From the names of all processes."""
    happen: Callable[[World, Fault], Awaitable[None]]
    holds: bool = True
    """No other fault that holds meets its nodes meanwhile."""


def drawn_faults(
    seed: int, seconds: float, nodes: tuple[str, ...], every_s: float, last_s: float
) -> tuple[Fault, ...]:
    """`every_s`, `last_s`: means of all kinds."""
    candidates: list[Fault] = []
    for name, kind in KINDS.items():
        chance = random.Random(f"{name} {seed}")
        rate = chance.choice(FREQUENCIES) * kind.share / every_s
        at_s = 0.0
        while rate and (at_s := at_s + chance.expovariate(rate)) < seconds:
            lasts_s = min(LASTS_MIN_S + chance.expovariate(1 / last_s), LASTS_MAX * last_s)
            met, details = kind.draw(chance, nodes)
            if at_s + lasts_s <= seconds:
                candidates.append(
                    Fault(
                        at_s=round(at_s, 2), kind=name, nodes=met, lasts_s=round(lasts_s, 2), details=details
                    )
                )
    return tuple(_not_too_many(candidates))


def _not_too_many(candidates: list[Fault]) -> list[Fault]:
    taken: list[Fault] = []
    for fault in sorted(candidates, key=lambda each: each.at_s):
        under_way = [each for each in taken[-50:] if each.at_s + each.lasts_s >= fault.at_s]
        if len(under_way) < AT_ONCE_MAX:
            taken.append(fault)
    return taken


@dataclass(eq=False)
class Nemesis:
    """Makes the faults of a plan happen."""

    world: World
    met: Counter[str] = field(default_factory=Counter)
    _held: set[str] = field(default_factory=set)

    async def run(self, faults: tuple[Fault, ...], seconds: float) -> None:
        loop = self.world.loop
        began_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(began_s + fault.at_s - loop.time())
                tasks.create_task(self._one(fault))
            await asyncio.sleep(began_s + seconds - loop.time())

    async def _one(self, fault: Fault) -> None:
        """It meets those of its nodes that no other fault holds."""
        kind = KINDS[fault.kind]
        if not kind.holds:
            self.met[fault.kind] += 1
            await kind.happen(self.world, fault)
            return
        free = [node for node in fault.nodes if node not in self._held]
        if not free:
            return
        self._held.update(free)
        self.met[fault.kind] += 1
        await kind.happen(self.world, replace(fault, nodes=tuple(free)))
        self._held.difference_update(free)


def _one_of(chance: random.Random, nodes: tuple[str, ...]) -> Drawn:
    return (chance.choice(nodes),), {}


# -- processes ---------------------------------------------------------------------------------------


async def kill(world: World, fault: Fault) -> None:
    who = "all processes are" if len(fault.nodes) > 1 else f"{fault.nodes[0]} is"
    world.note(f"** {who} killed, for {fault.lasts_s:.1f} s")
    for node in fault.nodes:
        world.kill(node)
    await asyncio.sleep(fault.lasts_s if len(fault.nodes) == 1 else min(fault.lasts_s, RESTART_MAX_S))
    for node in fault.nodes:
        world.boot(node)


async def drain(world: World, fault: Fault) -> None:
    (node,) = fault.nodes
    world.note(f"** {node} is stopped")
    world.stop(node)


async def pause(world: World, fault: Fault) -> None:
    (node,) = fault.nodes
    world.note(f"** {node} is paused for {fault.lasts_s:.1f} s")
    world.pause(node)
    await asyncio.sleep(fault.lasts_s)
    world.resume(node)


def _stuttering(chance: random.Random, nodes: tuple[str, ...]) -> Drawn:
    return (chance.choice(nodes),), {
        "stands_s": round(chance.uniform(0.02, 0.8), 3),
        "runs_s": round(chance.uniform(0.001, 0.3), 3),
    }


async def stutter(world: World, fault: Fault) -> None:
    """As on a busy machine: what comes while a process stands is handled in one turn of its loop."""
    (node,) = fault.nodes
    world.note(f"** {node} stutters for {fault.lasts_s:.1f} s: {dict(fault.details)}")
    end_s = world.loop.time() + fault.lasts_s
    while world.loop.time() < end_s:
        world.pause(node)
        await asyncio.sleep(fault.details["stands_s"])
        world.resume(node)
        await asyncio.sleep(fault.details["runs_s"])


def _skewed(chance: random.Random, nodes: tuple[str, ...]) -> Drawn:
    return (chance.choice(nodes),), {"skew_ms": chance.randint(-SKEW_MS_MAX, SKEW_MS_MAX)}


async def skew(world: World, fault: Fault) -> None:
    (node,), skew_ms = fault.nodes, int(fault.details["skew_ms"])
    world.note(f"** the clock of {node} is wrong by {skew_ms} ms for {fault.lasts_s:.1f} s")
    instance = world.instances[node]
    world.skewed.add(node)
    instance.skew_ms = skew_ms
    await asyncio.sleep(fault.lasts_s)
    instance.skew_ms = 0


# -- the network -------------------------------------------------------------------------------------


def _pair(chance: random.Random, nodes: tuple[str, ...]) -> Drawn:
    one = chance.choice(nodes)
    return (one, chance.choice([each for each in (*nodes, ETCD, ETCD, STORE) if each != one])), {}


async def cut(world: World, fault: Fault) -> None:
    one, other = fault.nodes
    world.note(f"** {one} and {other} are cut off for {fault.lasts_s:.1f} s")
    world.network.cut(one, other)
    await asyncio.sleep(fault.lasts_s)
    world.network.heal(one, other)


async def reset(world: World, fault: Fault) -> None:
    """Requests arrive, and their answers are lost."""
    (node,) = fault.nodes
    world.note(f"** the connections of {node} break")
    world.network.drop_connections(node, "connection reset")


# -- etcd --------------------------------------------------------------------------------------------


async def etcd_away(world: World, fault: Fault) -> None:
    world.note(f"** etcd has no leader for {fault.lasts_s:.1f} s")
    world.etcd.go_away()
    await asyncio.sleep(fault.lasts_s)
    world.etcd.come_back()


def _slowness(chance: random.Random, _nodes: tuple[str, ...]) -> Drawn:
    return (ETCD,), {"most_s": chance.choice((0.1, 0.5, 1.5))}


async def etcd_slow(world: World, fault: Fault) -> None:
    """As with a busy disk: each message takes a while."""
    world.slow[ETCD] = 0.0, fault.details["most_s"]
    world.note(f"** each message of etcd takes up to {fault.details['most_s']} s, for {fault.lasts_s:.1f} s")
    await asyncio.sleep(fault.lasts_s)
    del world.slow[ETCD]


async def damaged_head(world: World, fault: Fault) -> None:
    """Until an operator restores the newest value that etcd had."""
    model, chance = world.etcd.model, random.Random(int(fault.details["seed"]))
    heads = model.under(KEYS.heads_prefix())
    if not heads:
        return
    head = chance.choice(heads)
    world.note(f"** the head {KEYS.parse_head(head.key)} cannot be read for {fault.lasts_s:.1f} s")
    unreadable = _replace(world, head.key, head.mod_revision, b"\xff" + head.value)
    await asyncio.sleep(fault.lasts_s)
    _replace(world, head.key, unreadable, head.value)


def _replace(world: World, key: bytes, revision: int, value: bytes) -> int:
    """The value that the key has since this revision, and no other. Returns the revision of the new one."""
    model = world.etcd.model
    was = model.full, model.alarm
    model.full = model.alarm = False  # damage asks for no space
    txn = Txn(compare=(Compare(key, "mod", "=", revision),), success=(Put(key, value),))
    replaced = model.txn(txn).revision
    model.full, model.alarm = was
    return replaced


async def etcd_full(world: World, fault: Fault) -> None:
    """Until an operator gives it space, and takes back its alarm."""
    world.note(f"** etcd has no space for {fault.lasts_s:.1f} s")
    world.etcd.model.full = True
    await asyncio.sleep(fault.lasts_s)
    world.etcd.model.full = world.etcd.model.alarm = False


KINDS: Final[dict[str, Kind]] = {
    "kill": Kind(share=0.15, draw=_one_of, happen=kill),
    "all killed": Kind(share=0.07, draw=lambda _chance, nodes: (nodes, {}), happen=kill),
    "drain": Kind(share=0.07, draw=_one_of, happen=drain, holds=False),
    "pause": Kind(share=0.15, draw=_one_of, happen=pause),
    "clock": Kind(share=0.07, draw=_skewed, happen=skew, holds=False),
    "cut": Kind(share=0.15, draw=_pair, happen=cut, holds=False),
    "reset": Kind(
        share=0.15, draw=lambda chance, nodes: _one_of(chance, (*nodes, ETCD)), happen=reset, holds=False
    ),
    "etcd away": Kind(share=0.07, draw=lambda _chance, _nodes: ((ETCD,), {}), happen=etcd_away),
    "store": Kind(share=0.15, draw=store_faults.of_rates, happen=store_faults.storm),
    "no put": Kind(share=0.05, draw=store_faults.of_refusals, happen=store_faults.no_put),
    "thin store": Kind(share=0.05, draw=store_faults.always, happen=store_faults.thin),
    "lost object": Kind(
        share=0.05, draw=store_faults.of_chances, happen=store_faults.lost_object, holds=False
    ),
    "etcd full": Kind(share=0.03, draw=lambda _chance, _nodes: ((ETCD,), {}), happen=etcd_full),
    "damaged head": Kind(share=0.05, draw=store_faults.of_chances, happen=damaged_head, holds=False),
    "slow etcd": Kind(share=0.1, draw=_slowness, happen=etcd_slow),
    "stutter": Kind(share=0.1, draw=_stuttering, happen=stutter),
}

"""Faults of the object store: it fails single requests, takes no PUT, is thin, or an object is lost and is given back.
How they are drawn is in `faults`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafscale.storage.objects import StoreFull, StoreRefused

from tools.simulator.lost_objects import give_back, lose
from tools.simulator.store import NODE, Rates

if TYPE_CHECKING:
    from tools.simulator.faults import Drawn, Fault
    from tools.simulator.world import World

REFUSALS: Final = (StoreFull, StoreRefused)
PUT_S: Final = (0.2, 4.0)


def of_rates(chance: random.Random, _nodes: tuple[str, ...]) -> Drawn:
    return (NODE,), {name: chance.choice((0.0, 0.05, 0.2)) for name in Rates.__slots__}


def of_refusals(chance: random.Random, _nodes: tuple[str, ...]) -> Drawn:
    return (NODE,), {"refusal": chance.randrange(len(REFUSALS))}


def of_chances(chance: random.Random, _nodes: tuple[str, ...]) -> Drawn:
    """Which object it is depends on the run; `seed` decides among those that there are."""
    return (), {"seed": chance.randrange(1 << 30)}


def always(_chance: random.Random, _nodes: tuple[str, ...]) -> Drawn:
    details: Mapping[str, float] = {}
    return (NODE,), details


async def storm(world: World, fault: Fault) -> None:
    world.store.rates = Rates(**fault.details)
    world.note(f"** the store fails for {fault.lasts_s:.1f} s: {world.store.rates}")
    await asyncio.sleep(fault.lasts_s)
    world.store.rates = Rates()


async def no_put(world: World, fault: Fault) -> None:
    world.store.refusal = REFUSALS[int(fault.details["refusal"])]
    world.note(f"** the store takes no PUT for {fault.lasts_s:.1f} s: {world.store.refusal.__name__}")
    await asyncio.sleep(fault.lasts_s)
    world.store.refusal = None


async def thin(world: World, fault: Fault) -> None:
    world.note(f"** each PUT takes {PUT_S} s, for {fault.lasts_s:.1f} s")
    world.store.put_s = PUT_S
    await asyncio.sleep(fault.lasts_s)
    world.store.put_s = None


async def lost_object(world: World, fault: Fault) -> None:
    loss = lose(world, random.Random(int(fault.details["seed"])))
    await asyncio.sleep(fault.lasts_s)
    if loss is not None:
        give_back(world, loss)

"""etcd goes back: it is restored to an older snapshot, or is empty, while all processes run. Law: nobody deletes an
object from then on, because the records in it may be what a recovery from the bucket needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kafscale.testkit.etcd_model.model import State

from tools.simulator.world import World

LASTS_S: Final = 400.0
"""Longer than the shortest grace of bundles, and than two looks of those that delete."""
WITNESSES: Final = "/@kafscale/history/"


async def remember(world: World, after_s: float, found: list[State]) -> None:
    """Takes the snapshot."""
    await asyncio.sleep(after_s)
    found.append(world.etcd.model.snapshot())


async def restore(world: World, snapshot: State, write: Callable[[], Awaitable[None]]) -> list[str]:
    """The broken laws. `write` produces meanwhile: its records may be refused."""
    before = await names(world)
    world.note(f"** etcd goes back to revision {snapshot.history.revision}; there are {len(before)} objects")
    world.etcd.restore(snapshot)
    world.stopped.clear()
    writing = asyncio.ensure_future(write())
    await asyncio.sleep(LASTS_S)
    writing.cancel()
    world.stopped.set()
    gone = before - await names(world)
    return [f"deleted after etcd went back: {name}" for name in sorted(gone)]


async def names(world: World) -> set[str]:
    return {info.key async for info in world.store.objects.list("") if WITNESSES not in info.key}

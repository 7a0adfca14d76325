"""How old the oldest slice is that the partitions of this instance have not settled yet.

It shows that settling does not keep up, or fails. A look goes through the heads in memory, with pauses; a scrape only
reads what the last look found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kafscale.produce.partition import Partition
from kafscale.runtime.clock import Clock

LOOK_EVERY_S: Final = 5.0
PAGE: Final = 500
"""Partitions in one turn of the loop."""


class SliceAge:
    """`watch` it in a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._created_ms: int | None = None  # by the wall clock; None: there are no slices

    @property
    def seconds(self) -> float:
        """0 without slices."""
        return 0.0 if self._created_ms is None else max(0, self._clock.wall_ms() - self._created_ms) / 1000

    async def watch(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        while True:
            await self.look(partitions())
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, partitions: Iterable[Partition]) -> None:
        oldest_ms: int | None = None
        for number, partition in enumerate(list(partitions), start=1):
            tail = partition.writer.head.tail if partition.writer is not None else ()
            first = next(
                (seg for seg in tail if seg.is_slice), None
            )  # they are in the order of their commits
            if first is not None and (oldest_ms is None or first.created_ms < oldest_ms):
                oldest_ms = first.created_ms
            if number % PAGE == 0:
                await asyncio.sleep(0)
        self._created_ms = oldest_ms

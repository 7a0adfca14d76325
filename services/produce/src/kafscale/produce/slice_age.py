"""How old the oldest slice is that the partitions of this instance have not settled yet.

It shows that settling does not keep up, or fails. A look goes through the heads in memory, with pauses; a scrape only
reads what the last look found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kafscale.produce.log.model import Instant
from kafscale.produce.partition import Partition
from kafscale.runtime.clock import Clock

LOOK_EVERY_S: Final = 5.0
PAGE: Final = 500
"""Partitions in one turn of the loop."""


class SliceAge:
    """`watch` it in a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None  # by the monotonic clock; None: there are no slices

    @property
    def seconds(self) -> float:
        """0 without slices."""
        return 0.0 if self._since_ms is None else (self._clock.now_ms() - self._since_ms) / 1000

    async def watch(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        while True:
            await self.look(partitions())
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, partitions: Iterable[Partition]) -> None:
        since_ms: int | None = None
        now = Instant(self._clock.now_ms(), self._clock.wall_ms())
        for number, partition in enumerate(list(partitions), start=1):
            writer = partition.writer
            age_ms = writer.plans.slice_age_ms(writer.head, now) if writer is not None else None
            if age_ms is not None and (since_ms is None or now.mono_ms - age_ms < since_ms):
                since_ms = now.mono_ms - age_ms
            if number % PAGE == 0:
                await asyncio.sleep(0)
        self._since_ms = since_ms

"""How many transactions are open in the partitions of this instance, and for how long.

A transaction that stays open holds up every consumer that reads committed records only. A head does not say when it
began, so the age is the time for which this instance has seen it open. A look goes through the heads in memory, with
pauses; a scrape only reads what the last look found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kafscale.produce.partition import Partition
from kafscale.runtime.clock import Clock
from kafscale.storage.keys import PartitionKey

LOOK_EVERY_S: Final = 5.0
PAGE: Final = 500
"""Partitions in one turn of the loop."""

Open = tuple[PartitionKey, int, int]
"""Partition, producer id, first offset."""


class OpenTransactions:
    """`watch` it in a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[Open, int] = {}  # seen first, by the monotonic clock; the oldest first

    @property
    def count(self) -> int:
        return len(self._since_ms)

    @property
    def oldest_s(self) -> float:
        """0 if none is open."""
        return (self._clock.now_ms() - next(iter(self._since_ms.values()), self._clock.now_ms())) / 1000

    async def watch(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        while True:
            await self.look(partitions())
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, partitions: Iterable[Partition]) -> None:
        now_ms, found = self._clock.now_ms(), set[Open]()
        for number, partition in enumerate(list(partitions), start=1):
            writer = partition.writer
            if writer is not None:
                found |= {(partition.key, each.producer_id, each.first) for each in writer.head.open}
            if number % PAGE == 0:
                await asyncio.sleep(0)
        self._since_ms = {each: since_ms for each, since_ms in self._since_ms.items() if each in found}
        for each in found:
            self._since_ms.setdefault(each, now_ms)

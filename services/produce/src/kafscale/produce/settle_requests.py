"""Settling as operators ask for it and see it.

A request to settle at once, which `kafscale settle` writes into etcd, is a key with the name of a topic, or without one
for all topics. It exists as long as its command waits, and its lease ends it with the deadline of the command. All
instances watch these keys. While a topic has a request, its writers get a `settle_ms` of 0, so every slice that they
have or commit is due. A key reaches what calls to the owners would miss: a partition that is claimed or handed over
meanwhile gets its limits with the claim.

`SliceAge` is how old the oldest slice is that the partitions of this instance have not settled yet. It shows that
settling does not keep up, or fails. A look goes through the heads in memory, with pauses; a scrape only reads what the
last look found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from kafscale.produce.log.model import Instant, Limits
from kafscale.produce.partition import Partition
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import Topic
from kafscale.storage.views import PrefixView

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


"""Partitions configured in one turn of the loop."""


class SettleRequests:
    """`run` the view and `apply` in tasks."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self.view: PrefixView[str] = PrefixView(etcd, keyspace.settle_requests_prefix(), self._topic)
        self._changed = asyncio.Event()
        self.view.subscribe(lambda *_: self._changed.set())

    def _topic(self, kv: KeyValue) -> str:
        return self._keyspace.parse_settle_request(kv.key)

    def limits(self, limits: Limits, topic: Topic) -> Limits:
        """Those of the topic, with its requests."""
        asked = any(name in ("", topic.name) for name in self.view.items.values())
        return replace(limits, settle_ms=0) if asked else limits

    async def apply(
        self, partitions: Callable[[], Iterable[Partition]], configure: Callable[[Partition], None]
    ) -> None:
        """Configure the owned partitions after each change; those of a later claim have read the requests."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await _each(partitions(), configure)


async def _each(partitions: Iterable[Partition], configure: Callable[[Partition], None]) -> None:
    """In a frame of its own: what waits for the next change holds no partition."""
    for number, partition in enumerate(list(partitions), start=1):
        configure(partition)
        if number % PAGE == 0:
            await asyncio.sleep(0)

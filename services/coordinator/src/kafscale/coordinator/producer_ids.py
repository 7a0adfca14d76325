"""Producer ids: blocks of 1,000, reserved in etcd by compare-and-swap and handed out from memory.

An id is never handed out twice. If the owner of a block dies, or the outcome of a reservation is unknown, the block
is lost. Gaps are legal (docs/protocol/commit.md, producer ids).

The record may be lost while producers live, or set back when etcd is restored from a backup. So a block starts at
the milliseconds since 1970, times IDS_PER_MS, or higher. If the clocks are right, this is above all ids that were
handed out before, because etcd cannot grant a block in each millisecond. A record that cannot be read is never
overwritten: a newer version may have written it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Txn
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import SCHEMA, parse_value
from kafscale.store.v1.store_pb2 import ProducerIds

BLOCK_SIZE = 1000
IDS_PER_MS: Final = 1 << 10
"""Ids stay below 2^53 until the year 2248: every client can represent them."""


class ProducerIdBlocks:
    """The ids of this coordinator. `draw` raises EtcdError, TooContended or UnreadableValue."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace, clock: Clock) -> None:
        self._etcd = etcd
        self._clock = clock
        self._key = keys.pid_next()
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def draw(self) -> int:
        """An id that no other producer has or will get."""
        async with self._refill:
            if self._next == self._end:
                self._next = await swapped("the next producer id", self._try_reserve)
                self._end = self._next + BLOCK_SIZE
            drawn = self._next
            self._next += 1
            return drawn

    async def _try_reserve(self) -> int | None:
        """The first id of a block that belongs to this coordinator alone; None if another coordinator was first."""
        found = await self._etcd.get(self._key)
        revision, first = 0, max(self._end, self._clock.wall_ms() * IDS_PER_MS)
        if found is not None:
            held = ProducerIds()
            parse_value(held, found.value, "next producer id")
            revision, first = found.mod_revision, max(first, held.next)
        after = ProducerIds(schema=SCHEMA, next=first + BLOCK_SIZE)
        result = await self._etcd.txn(
            Txn(
                compare=(Compare(self._key, "mod", "=", revision),),
                success=(Put(self._key, after.SerializeToString()),),
            )
        )
        return first if result.succeeded else None

"""Producer ids: blocks of a thousand from etcd by compare-and-swap, handed out from memory.

An id is never handed out twice. A block whose owner dies, or whose reservation has an unknown
outcome, is lost; gaps are legal (commit protocol, producer ids).

The record may be lost, or set back with an etcd that is restored from a backup, while producers live. So a block begins
no lower than the clock's floor: the milliseconds since 1970, times IDS_PER_MS. That is above all ids that were handed
out before, as long as clocks are right: etcd does not grant a block in each millisecond.
A record that cannot be read is not written over all the same: a newer version may have written it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Txn
from kafscale.storage.heads import parse_value
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1.store_pb2 import ProducerIds

BLOCK_SIZE = 1000
IDS_PER_MS: Final = 1 << 10
"""Of the floor. Ids stay below 2^53, which every client can count, until the year 2248."""
CAS_TRIES_MAX = 16


class TooContended(Exception):
    """Other coordinators took each block that we asked for."""

    def __init__(self) -> None:
        super().__init__(f"no block of producer ids could be taken in {CAS_TRIES_MAX} tries")


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
        """An id that nobody else has or ever gets."""
        async with self._refill:
            if self._next == self._end:
                self._next = await self._reserve()
                self._end = self._next + BLOCK_SIZE
            drawn = self._next
            self._next += 1
            return drawn

    async def _reserve(self) -> int:
        """The first id of a block that is ours alone."""
        for _ in range(CAS_TRIES_MAX):
            found = await self._etcd.range(self._key)
            revision, first = 0, max(self._end, self._clock.wall_ms() * IDS_PER_MS)
            if found.kvs:
                held = ProducerIds()
                parse_value(held, found.kvs[0].value, "next producer id")
                revision, first = found.kvs[0].mod_revision, max(first, held.next)
            after = ProducerIds(schema=SCHEMA, next=first + BLOCK_SIZE)
            result = await self._etcd.txn(
                Txn(
                    compare=(Compare(self._key, "mod", "=", revision),),
                    success=(Put(self._key, after.SerializeToString()),),
                )
            )
            if result.succeeded:
                return first
        raise TooContended

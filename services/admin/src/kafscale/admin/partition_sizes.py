"""The bytes of partitions, computed from their heads and metas.

A head counts the bytes of all segments that were ever committed to its partition, and meta counts the deleted bytes,
so no manifest is read. A partition that no instance has claimed has no head and no bytes. Heads list segments and may
be large: they are read in small transactions and not kept, and few requests read at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import structlog
from kafscale.log.state import read_state, state_reads
from kafscale.storage.etcd.client import EtcdClient, RangeResult
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.schema import UnreadableValue

PARTITIONS_PER_READ = 60
"""Two keys each, under etcd's default of 128 operations in a transaction."""
READINGS_AT_ONCE = 4
UNKNOWN = -1

log = structlog.get_logger(__name__)


class PartitionSizes:
    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._etcd = etcd
        self._keys = keys
        self._slots = asyncio.Semaphore(READINGS_AT_ONCE)

    async def of(self, partitions: Iterable[PartitionKey]) -> Mapping[PartitionKey, int]:
        """Bytes of each, UNKNOWN where a head or meta cannot be read. Raises EtcdError."""
        wanted = list(partitions)
        sizes: dict[PartitionKey, int] = {}
        async with self._slots:
            for start in range(0, len(wanted), PARTITIONS_PER_READ):
                some = wanted[start : start + PARTITIONS_PER_READ]
                reads = [state_reads(self._keys, *partition) for partition in some]
                found = await self._etcd.ranges([each for pair in reads for each in pair])
                pairs = zip(some, found[::2], found[1::2], strict=True)
                sizes |= {partition: _held(head, meta) for partition, head, meta in pairs}
        return sizes


def _held(head: RangeResult, meta: RangeResult) -> int:
    try:
        return read_state(head, meta).bytes
    except UnreadableValue as error:
        log.error("partition size unreadable", why=str(error))
        return UNKNOWN

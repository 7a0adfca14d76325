"""How many bytes partitions hold, read off their heads.

A head counts the bytes of all segments ever committed to its partition, so no manifest is opened. A partition that
nobody has claimed has no head and holds nothing. Heads list segments and are not small: they are read a
transaction at a time and forgotten, and no more than a few readings are under way at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from kafscale.storage.etcd import EtcdClient, Range
from kafscale.storage.heads import decode_head
from kafscale.storage.keys import Keyspace, TopicId

HEADS_PER_READ = 100
"""Under etcd's default of 128 operations in a transaction."""
READINGS_AT_ONCE = 4

PartitionKey = tuple[TopicId, int]


class Sizes:
    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._etcd = etcd
        self._keys = keys
        self._slots = asyncio.Semaphore(READINGS_AT_ONCE)

    async def of(self, partitions: Iterable[PartitionKey]) -> Mapping[PartitionKey, int]:
        """Bytes of each. Raises EtcdError; CorruptValue or UnknownSchema for a head that cannot be read."""
        wanted = list(partitions)
        sizes: dict[PartitionKey, int] = {}
        async with self._slots:
            for start in range(0, len(wanted), HEADS_PER_READ):
                some = wanted[start : start + HEADS_PER_READ]
                found = await self._etcd.ranges([Range(self._keys.head(*partition)) for partition in some])
                for partition, result in zip(some, found, strict=True):
                    sizes[partition] = decode_head(result.kvs[0].value).bytes if result.kvs else 0
        return sizes

"""Partitions that a tool asks about by name: found as a Produce finds them, and waited for until they are loaded.

A partition whose owner is gone is claimed. One that was never claimed has nothing, and stays unclaimed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from kafscale.produce.ownership import HOLD_MAX_MS, Ownership
from kafscale.produce.partition import Partition, Phase
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

PARTITIONS_AT_ONCE: Final = 64
"""Of one request: each may be a claim, with a log to be loaded."""


class AskedPartitions:
    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._world = ownership.world

    async def serving(self, name: str, index: int) -> Partition | ErrorCode | None:
        """With a writer; None: it was never claimed. Errors: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER if it
        is another's, is not loaded in time or etcd cannot be read."""
        topics = self._world.topics
        known = topics.find(name, index) is not None or await topics.confirmed()
        topic = topics.find(name, index)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            if await self._never_claimed(topic, index):
                return None
        except EtcdError as error:
            log.info("head not read", topic=name, partition=index, error=str(error))
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self._ownership.find_or_claim(topic, index)
        if isinstance(partition, ErrorCode):
            return partition
        return partition if await _is_loaded(partition) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def _never_claimed(self, topic: Topic, index: int) -> bool:
        """The view may be late, so etcd has the last word on a partition without owner record."""
        key = (topic.topic_id, index)
        if key in self._ownership.partitions or self._ownership.record(*key) is not None:
            return False
        return await self._world.etcd.get(self._world.keyspace.head(*key)) is None


async def _is_loaded(partition: Partition) -> bool:
    try:
        async with asyncio.timeout(HOLD_MAX_MS / 1000):
            await partition.loaded.wait()
    except TimeoutError:
        return False
    return partition.writer is not None and partition.phase is Phase.SERVING

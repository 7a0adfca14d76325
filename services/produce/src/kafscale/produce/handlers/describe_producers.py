"""DescribeProducers (61): v0-0 (KIP-664)

The idempotent producers of a partition as its owner knows them: those that it remembers, whose last batch is younger
than KAFSCALE_PRODUCE_PRODUCER_EXPIRATION_MS, and those with an open transaction, however old that is. Asking for a
partition whose owner is gone makes the next one claim it, as a Produce would; one that was never claimed has no
producers and stays unclaimed. The coordinator epoch is -1 before a producer's first marker, and the start of its
transaction -1 if none is open.
Per partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER when it is another's or is not loaded in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import structlog
from kafscale.log.snapshots import ProducerEntry
from kafscale.produce.log.producers import STEP_PRODUCERS
from kafscale.produce.ownership import HOLD_MAX_MS, Ownership
from kafscale.produce.partition import Partition, Phase
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import InboundRequest
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.topics import Topic
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_producers import (
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopic,
    decode_request,
    encode_response,
)

log = structlog.get_logger(__name__)

PARTITIONS_AT_ONCE = 64
"""Of one request: each may be a claim, with a log to be loaded."""
NO_OFFSET = NO_SEQUENCE = -1


class Described(NamedTuple):
    """A producer with the first offset of its open transaction, or -1."""

    entry: ProducerEntry
    first: int


class DescribeProducersHandler:
    def __init__(self, *, ownership: Ownership, clock: Clock) -> None:
        self._ownership = ownership
        self._world = ownership.world
        self._clock = clock

    async def __call__(self, inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        slots = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def one(name: str, index: int) -> DescribeProducersResponsePartition:
            async with slots:
                return _answer(index, await self._producers(name, index))

        response = DescribeProducersResponse(topics=[])
        for topic in request.topics:
            parts = await asyncio.gather(*(one(topic.name, index) for index in topic.partition_indexes))
            response.topics.append(DescribeProducersResponseTopic(name=topic.name, partitions=list(parts)))
        return answered(inbound, response, encode_response)

    async def _producers(self, name: str, index: int) -> Sequence[Described] | ErrorCode:
        topics = self._world.topics
        known = topics.find(name, index) is not None or await topics.confirmed()
        topic = topics.find(name, index)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            if await self._never_claimed(topic, index):
                return ()
        except EtcdError as error:
            log.info("head not read", topic=name, partition=index, error=str(error))
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self._ownership.find_or_claim(topic, index)
        return partition if isinstance(partition, ErrorCode) else await self._known_to(partition)

    async def _never_claimed(self, topic: Topic, index: int) -> bool:
        """The view may be late, so etcd has the last word on a partition without owner record."""
        key = (topic.topic_id, index)
        if key in self._ownership.partitions or self._ownership.record(*key) is not None:
            return False
        return await self._world.etcd.get(self._world.keyspace.head(*key)) is None

    async def _known_to(self, partition: Partition) -> Sequence[Described] | ErrorCode:
        try:
            async with asyncio.timeout(HOLD_MAX_MS / 1000):
                await partition.loaded.wait()
        except TimeoutError:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.writer is None or partition.phase is not Phase.SERVING:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        table, found = partition.producers, list[Described]()
        open_ = {each.producer_id: each.first for each in partition.writer.head.open}
        producer_ids = dict.fromkeys((*table.remembered(self._clock.wall_ms()), *open_))
        for number, producer_id in enumerate(producer_ids, 1):
            entry = table.entry(producer_id, partition.writer.head.next)
            if entry is not None:
                found.append(Described(entry, open_.get(producer_id, NO_OFFSET)))
            if number % STEP_PRODUCERS == 0:
                await asyncio.sleep(0)
        return found


def _answer(index: int, known: Sequence[Described] | ErrorCode) -> DescribeProducersResponsePartition:
    if isinstance(known, ErrorCode):
        return DescribeProducersResponsePartition(
            partition_index=index, error_code=known, error_message=known.message
        )
    return DescribeProducersResponsePartition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponseProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_seq if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.batches[-1].ts if entry.batches else entry.last_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=first,
            )
            for entry, first in known
        ],
    )

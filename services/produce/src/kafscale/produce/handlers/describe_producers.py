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

from kafscale.log.snapshots import ProducerEntry
from kafscale.produce.asked_partitions import PARTITIONS_AT_ONCE, AskedPartitions
from kafscale.produce.log.producers import STEP_PRODUCERS
from kafscale.produce.partition import Partition
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import InboundRequest
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

NO_OFFSET = NO_SEQUENCE = -1


class Described(NamedTuple):
    """A producer with the first offset of its open transaction, or -1."""

    entry: ProducerEntry
    first: int


class DescribeProducersHandler:
    def __init__(self, partitions: AskedPartitions, clock: Clock) -> None:
        self._partitions = partitions
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
        partition = await self._partitions.serving(name, index)
        if partition is None:
            return ()
        return partition if isinstance(partition, ErrorCode) else await self._known_to(partition)

    async def _known_to(self, partition: Partition) -> Sequence[Described]:
        table, writer, found = partition.producers, partition.writer, list[Described]()
        assert writer is not None, "it is loaded"
        open_ = {each.producer_id: each.first for each in writer.head.open}
        producer_ids = dict.fromkeys((*table.remembered(self._clock.wall_ms()), *open_))
        for number, producer_id in enumerate(producer_ids, 1):
            entry = table.entry(producer_id, writer.head.next)
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

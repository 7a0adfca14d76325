"""WriteTxnMarkers (27): v1-2   v2 transaction version (KIP-1228), which is not looked at

An operator aborts a transaction that nobody ends: the record of its id is lost, so it stays open in partitions, and
read_committed consumers stop there. In Kafka a coordinator sends this request, too. Here it sends `End` (`ends.py`), so
this API aborts only what no coordinator knows. All of them are asked first (`Over`), and each slot of ids must be
proven: a transaction that is under way, or that is being ended, is not touched. What is over stays over, so nothing can
come between the answers and the marker.
Per partition: CLUSTER_AUTHORIZATION_FAILED for a commit; UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER, on which
tools retry, if the partition is another's or not loaded in time, a coordinator does not answer or the marker is not
committed in time; INVALID_PRODUCER_EPOCH for an epoch below that of the transaction; TRANSACTION_COORDINATOR_FENCED if
a coordinator has the transaction, or for a coordinator epoch that no coordinator has: below -1, as in Kafka. -1 is
unknown, and is stored as 0, as Kafka's tool does. NONE also if the producer has nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
from kafscale.log.heads import OpenTransaction
from kafscale.produce.asked_partitions import PARTITIONS_AT_ONCE, AskedPartitions
from kafscale.produce.ends import Ends
from kafscale.rpc.v1.transactions_pb2 import EndRequest, OverRequest, TransactionEnd
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import InboundRequest
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.participants import participants_to_pb
from kafscale.storage.keys import PartitionKey
from kafscale.storage.transactions import Participants
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.write_txn_markers import (
    WriteTxnMarkersRequestWritableMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableMarkerPartitionResult,
    WriteTxnMarkersResponseWritableMarkerResult,
    WriteTxnMarkersResponseWritableMarkerTopicResult,
    decode_request,
    encode_response,
)

log = structlog.get_logger(__name__)

OVER_TIMEOUT_S: Final = 5.0
UNKNOWN_EPOCH: Final = -1
"""Of a coordinator: the partition has no marker of the producer."""


class KnowsWhatIsOver(Protocol):
    """The calls to coordinators."""

    async def over(self, request: OverRequest, *, timeout_s: float) -> bool: ...


class WriteTxnMarkersHandler:
    def __init__(self, partitions: AskedPartitions, coordinators: KnowsWhatIsOver, ends: Ends) -> None:
        self._partitions = partitions
        self._coordinators = coordinators
        self._ends = ends

    async def __call__(self, inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        turns = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def one(
            marker: WriteTxnMarkersRequestWritableMarker, name: str, index: int
        ) -> WriteTxnMarkersResponseWritableMarkerPartitionResult:
            async with turns:
                code = await self._abort(marker, name, index)
            return WriteTxnMarkersResponseWritableMarkerPartitionResult(index, code)

        response = WriteTxnMarkersResponse(markers=[])
        for marker in request.markers:
            result = WriteTxnMarkersResponseWritableMarkerResult(producer_id=marker.producer_id, topics=[])
            for topic in marker.topics:
                some = await asyncio.gather(
                    *(one(marker, topic.name, each) for each in topic.partition_indexes)
                )
                result.topics.append(WriteTxnMarkersResponseWritableMarkerTopicResult(topic.name, list(some)))
            response.markers.append(result)
        return answered(inbound, response, encode_response)

    async def _abort(self, marker: WriteTxnMarkersRequestWritableMarker, name: str, index: int) -> ErrorCode:
        if marker.transaction_result:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        partition = await self._partitions.serving(name, index)
        if isinstance(partition, ErrorCode):
            return partition
        if partition is None or partition.writer is None:
            return ErrorCode.NONE
        open_there = partition.writer.head.open
        begun = next((each for each in open_there if each.producer_id == marker.producer_id), None)
        if begun is None:
            return ErrorCode.NONE
        if marker.producer_epoch < begun.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < UNKNOWN_EPOCH:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        code = await self._over(begun)
        if code is not ErrorCode.NONE:
            return code
        log.warning(
            "transaction aborted by an operator",
            topic=name,
            partition=index,
            producer_id=begun.producer_id,
            number=begun.number,
            first=begun.first,
        )
        return await self._end(marker, begun, (partition.id.topic_id, index))

    async def _over(self, begun: OpenTransaction) -> ErrorCode:
        asked = OverRequest(producer_id=begun.producer_id, number=begun.number)
        try:
            is_over = await self._coordinators.over(asked, timeout_s=OVER_TIMEOUT_S)
        except CallFailed as error:
            log.info("transaction not aborted", producer_id=begun.producer_id, why=str(error))
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if is_over else ErrorCode.TRANSACTION_COORDINATOR_FENCED

    async def _end(
        self, marker: WriteTxnMarkersRequestWritableMarker, begun: OpenTransaction, key: PartitionKey
    ) -> ErrorCode:
        end = TransactionEnd(
            producer_id=begun.producer_id,
            number=begun.number,
            commit=False,
            marker_epoch=marker.producer_epoch,
            coordinator_epoch=max(marker.coordinator_epoch, 0),
            participants=participants_to_pb(Participants(frozenset({key}))),
        )
        reply = await self._ends.end(EndRequest(ends=[end]))
        return ErrorCode.NONE if reply.done else ErrorCode.NOT_LEADER_OR_FOLLOWER

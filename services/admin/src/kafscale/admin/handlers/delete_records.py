"""DeleteRecords (21): v0-2.   KIP-107 · v2 flexible

Moves each partition's log start to the offset asked for, -1 standing for the high watermark; answers the log
start afterwards as `low_watermark`, in records, or -1 with an error. Below the present start nothing changes.
A partition named twice counts once, with its last offset, as in Kafka. No leader is needed.
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION (compacted only), REQUEST_TIMED_OUT (unknown).
The reply carries etcd's revision: the front door shows it to fetch services, which then know the new start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.admin.context import AdminContext
from kafscale.admin.log_starts import TopicPartition
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartitionResult,
    DeleteRecordsResponseTopicResult,
    decode_request,
    encode_response,
)

NO_LOW_WATERMARK = -1
WAIT_MIN_S, WAIT_MAX_S = 1.0, 30.0
"""The request's timeout counts in between: without replicas to wait for, less than a second asks for nothing."""


def handler(context: AdminContext) -> AsyncHandler:
    async def delete_records(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        wait_s = min(max(request.timeout_ms / 1000, WAIT_MIN_S), WAIT_MAX_S)
        deleted = await context.log_starts.delete(_asked(request), wait_s)
        body = answered(inbound, DeleteRecordsResponse(topics=_results(deleted.results)), encode_response)
        inbound.reply(body, revision=deleted.revision)
        return body

    return delete_records


def _asked(request: DeleteRecordsRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, part.partition_index): part.offset
        for topic in request.topics
        for part in topic.partitions
    }


def _results(results: Mapping[TopicPartition, int | ErrorCode]) -> list[DeleteRecordsResponseTopicResult]:
    topics: dict[str, list[DeleteRecordsResponsePartitionResult]] = {}
    for place, result in results.items():
        topics.setdefault(place.topic, []).append(_result(place.partition, result))
    return [DeleteRecordsResponseTopicResult(name=name, partitions=parts) for name, parts in topics.items()]


def _result(partition: int, result: int | ErrorCode) -> DeleteRecordsResponsePartitionResult:
    if isinstance(result, ErrorCode):
        return DeleteRecordsResponsePartitionResult(
            partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=result
        )
    return DeleteRecordsResponsePartitionResult(partition_index=partition, low_watermark=result)

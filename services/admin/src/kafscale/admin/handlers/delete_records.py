"""DeleteRecords (21): v0-2.   KIP-107 · v2 flexible

Moves each partition's log start to the requested offset; -1 means the high watermark. The answer has the new log start
as `low_watermark`, or -1 with an error. A log start never falls. If a partition is named twice, its last offset is
used, as in Kafka. No leader is needed. OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
POLICY_VIOLATION (a compacted topic), INVALID_TOPIC_EXCEPTION (one of Kafka's own state), REQUEST_TIMED_OUT (unknown
outcome). The reply carries etcd's revision. The front door sends it to the fetch services, which then read the new log
start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.access.rules import Side, needs_of
from kafscale.admin.context import AdminContext
from kafscale.admin.log_starts import TopicPartition
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_records as api

NEEDS = needs_of(ApiKey.DELETE_RECORDS, Side.SERVICE)
(DELETE,) = NEEDS
NO_LOW_WATERMARK = -1
WAIT_MIN_S, WAIT_MAX_S = 1.0, 30.0
"""The bounds of the request's timeout. There are no replicas to wait for, so less than a second is not useful."""


def handler(context: AdminContext) -> AsyncHandler:
    async def delete_records(inbound: InboundRequest) -> Sequence[Buffer]:
        request = api.decode_request(inbound.body, inbound.meta.api_version)
        wait_s = min(max(request.timeout_ms / 1000, WAIT_MIN_S), WAIT_MAX_S)
        asked = _asked(request)
        denied = context.authorization.of(inbound.meta).denied(DELETE, (place.topic for place in asked))
        allowed = {place: offset for place, offset in asked.items() if place.topic not in denied}
        deleted = await context.log_starts.delete(allowed, wait_s)
        results = {place: deleted.results.get(place, DELETE.code) for place in asked}
        body = answered(inbound, api.DeleteRecordsResponse(topics=_results(results)), api.encode_response)
        inbound.reply(body, revision=deleted.revision)
        return body

    return delete_records


def _asked(request: api.DeleteRecordsRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, part.partition_index): part.offset
        for topic in request.topics
        for part in topic.partitions
    }


def _results(results: Mapping[TopicPartition, int | ErrorCode]) -> list[api.DeleteRecordsResponseTopicResult]:
    topics: dict[str, list[api.DeleteRecordsResponsePartitionResult]] = {}
    for place, result in results.items():
        topics.setdefault(place.topic, []).append(_result(place.partition, result))
    return [
        api.DeleteRecordsResponseTopicResult(name=name, partitions=parts) for name, parts in topics.items()
    ]


def _result(partition: int, result: int | ErrorCode) -> api.DeleteRecordsResponsePartitionResult:
    if isinstance(result, ErrorCode):
        return api.DeleteRecordsResponsePartitionResult(
            partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=result
        )
    return api.DeleteRecordsResponsePartitionResult(partition_index=partition, low_watermark=result)

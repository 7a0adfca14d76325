"""OffsetFetch (9): v0-10.   v2 null = all · v5 leader epochs · v6 flexible · v8 several groups · v10 topic ids
To the coordinator of the group's slot, once; from v8 on cut by coordinator and joined (see group_calls.py).
NOT_COORDINATOR whether it was lost or not even sent: Java's consumer asks for the coordinator again on that code, and
throws on COORDINATOR_NOT_AVAILABLE. The error stands at the top, in v0-1 with each partition, from v8 with each group.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.group_calls import BatchPolicy, Codes, GroupCaller, GroupPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_fetch as schema

TOP_ERROR_FROM: Final = 2
BATCHES_FROM: Final = 8
UNKNOWN_OFFSET: Final = -1


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    response = schema.OffsetFetchResponse(error_code=int(code))
    if version >= BATCHES_FROM:
        response.groups = [unserved(group.group_id, code) for group in request.groups]
    elif version < TOP_ERROR_FROM:
        response.topics = [_unserved_topic(topic, code) for topic in request.topics or ()]
    return schema.encode_response(response, version)


def unserved(group: str, code: ErrorCode) -> schema.OffsetFetchResponseGroup:
    return schema.OffsetFetchResponseGroup(group_id=group, error_code=int(code))


def _unserved_topic(
    topic: schema.OffsetFetchRequestTopic, code: ErrorCode
) -> schema.OffsetFetchResponseTopic:
    partitions = [
        schema.OffsetFetchResponsePartition(
            partition_index=index, committed_offset=UNKNOWN_OFFSET, error_code=int(code)
        )
        for index in topic.partition_indexes
    ]
    return schema.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


class OffsetFetchBatch:
    def __init__(self, body: memoryview, version: int) -> None:
        self._version = version
        self._request = schema.decode_request(body, version)
        self._throttle_time_ms = 0
        self.groups = [group.group_id for group in self._request.groups]

    def share(self, places: Sequence[int]) -> list[Buffer]:
        share = schema.OffsetFetchRequest(
            groups=[self._request.groups[place] for place in places],
            require_stable=self._request.require_stable,
        )
        return schema.encode_request(share, self._version)

    def read(self, body: memoryview) -> list[tuple[str, schema.OffsetFetchResponseGroup]]:
        response = schema.decode_response(body, self._version)
        self._throttle_time_ms = max(self._throttle_time_ms, response.throttle_time_ms)
        return [(group.group_id, group) for group in response.groups]

    def unserved(self, place: int, code: ErrorCode) -> schema.OffsetFetchResponseGroup:
        return unserved(self.groups[place], code)

    def join(self, found: Sequence[schema.OffsetFetchResponseGroup]) -> list[Buffer]:
        response = schema.OffsetFetchResponse(throttle_time_ms=self._throttle_time_ms, groups=list(found))
        return schema.encode_response(response, self._version)


CODES: Final = Codes(not_executed=ErrorCode.NOT_COORDINATOR)
POLICY: Final = GroupPolicy(refuse=refuse, flexible_from=schema.FLEXIBLE_FROM, codes=CODES)
BATCH_POLICY: Final = BatchPolicy(open=OffsetFetchBatch, refuse=refuse, codes=CODES)


class OffsetFetchHandler:
    def __init__(self, caller: GroupCaller) -> None:
        self._caller = caller

    def __call__(self, exchange: Exchange) -> None:
        if exchange.version >= BATCHES_FROM:
            self._caller.call_batch(exchange, BATCH_POLICY)
        else:
            self._caller.call(exchange, POLICY)

"""OffsetFetch (9): v0-10.   v2 null = all · v5 leader epochs · v6 flexible · v8 several groups · v10 topic ids
To the coordinator of the group's slot, once; from v8 on cut by coordinator and joined (see group_calls.py).
NOT_COORDINATOR whether it was lost or not even sent: Java's consumer asks for the coordinator again on that code, and
throws on COORDINATOR_NOT_AVAILABLE. The error is at the top, in v0-1 with each partition, from v8 with each group.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Codes, Own, ToSlot, ToSlots
from kafscale.frontdoor.authorization import need_of_each
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.key_fields import group_of
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import failed, failed_key, refuse_exchange
from kafscale.wire.apis import ApiKey
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
        entry = schema.OffsetFetchResponseGroup
        response.groups = [failed(entry, code, group_id=group.group_id) for group in request.groups]
    elif version < TOP_ERROR_FROM:
        response.topics = [_unserved_topic(topic, code) for topic in request.topics or ()]
    return schema.encode_response(response, version)


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


DESCRIBE: Final = need_of_each(ApiKey.OFFSET_FETCH)
CODES: Final = Codes(not_executed=ErrorCode.NOT_COORDINATOR)
GROUP: Final = ToSlot(codes=CODES)
GROUPS: Final = ToSlots(
    schema=schema,
    asked="groups",
    response=schema.OffsetFetchResponse,
    results="groups",
    failed=failed_key(schema.OffsetFetchResponseGroup),
    codes=CODES,
)


class OffsetFetchHandler:
    def __init__(self, parts: Parts) -> None:
        self._slots = parts.slots
        self._authorizer = parts.authorizer

    def __call__(self, exchange: Exchange) -> None:
        if exchange.version >= BATCHES_FROM:
            self._slots.call_several(exchange, GROUPS, DESCRIBE)
        elif not self._authorizer.enforces or self._allowed(exchange):
            self._slots.call(exchange, GROUP)

    def _allowed(self, exchange: Exchange) -> bool:
        """False: the exchange has its answer. Raises WireError."""
        flexible = exchange.version >= exchange.api.key.flexible_from
        group = group_of(exchange.request.body, flexible=flexible)
        if self._authorizer.rights_of(exchange).allows(DESCRIBE, group):
            return True
        refuse_exchange(exchange, DESCRIBE.code)
        return False


API: Final = Api(
    key=ApiKey.OFFSET_FETCH,
    versions=(0, 10),
    backend=Backend.COORDINATOR,
    dispatch=Own(OffsetFetchHandler),
    refuse=refuse,
    large_answer=True,
    asks=(DESCRIBE,),
    reads=Area.GROUPS,
)

"""JoinGroup (11): v0-9.   v1 rebalance timeout · v4 member id required · v5 static members · v6 flexible · v7-9
To the coordinator of the group's slot, once (see group_calls.py). It is answered when the group's members have
joined, which may take their rebalance timeout: the request's own (v0: its session timeout) is its deadline here.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator and join again.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import join_group as schema

REBALANCE_TIMEOUT_FROM: Final = 1
NULL_PROTOCOL_FROM: Final = 7


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    response = schema.JoinGroupResponse(
        error_code=int(code),
        protocol_name=None if version >= NULL_PROTOCOL_FROM else "",
        member_id=request.member_id,
    )
    return schema.encode_response(response, version)


def wait_ms(body: memoryview, version: int) -> int:
    request = schema.decode_request(body, version)
    return request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_FROM else request.session_timeout_ms


API: Final = to_group(ApiKey.JOIN_GROUP, (0, 9), refuse, wait_ms=wait_ms, writes=None)

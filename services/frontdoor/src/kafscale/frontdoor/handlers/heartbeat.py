"""Heartbeat (12): v0-4.   v3 static members · v4 flexible
To the coordinator of the group's slot, once (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator again.
"""

from typing import Final

from kafscale.frontdoor.group_calls import GroupPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import heartbeat as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    schema.decode_request(body, version)
    return schema.encode_response(schema.HeartbeatResponse(error_code=int(code)), version)


POLICY: Final = GroupPolicy(refuse=refuse, flexible_from=schema.FLEXIBLE_FROM)

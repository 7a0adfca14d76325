"""LeaveGroup (13): v0-5.   v3 several members, static ones · v4 flexible · v5 reasons
To the coordinator of the group's slot, once (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost; who then does not come again leaves by its session timeout.
"""

from typing import Final

from kafscale.frontdoor.group_calls import GroupPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import leave_group as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    schema.decode_request(body, version)
    return schema.encode_response(schema.LeaveGroupResponse(error_code=int(code)), version)


POLICY: Final = GroupPolicy(refuse=refuse, flexible_from=schema.FLEXIBLE_FROM)

"""ConsumerGroupHeartbeat (68): v0-1.   v1 regular expressions, member ids from the client (KIP-848)
To the coordinator of the group's slot, once (see group_calls.py). It is never held: assignments come with the next.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator again.
"""

from typing import Final

from kafscale.frontdoor.group_calls import GroupPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    schema.decode_request(body, version)
    response = schema.ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=code.message)
    return schema.encode_response(response, version)


POLICY: Final = GroupPolicy(refuse=refuse, flexible_from=schema.FLEXIBLE_FROM)

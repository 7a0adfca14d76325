"""FindCoordinator (10): v0-6.   v1 key types · v3 flexible · v4 batches of keys, KIP-699
The coordinator names a front door. While none is there: COORDINATOR_NOT_AVAILABLE, which is retried.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import find_coordinator as schema

BATCHES_FROM: Final = 4


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    response = schema.FindCoordinatorResponse(
        error_code=int(code), error_message=code.message, node_id=-1, host="", port=-1
    )
    if version >= BATCHES_FROM:
        response.coordinators = [
            schema.FindCoordinatorResponseCoordinator(
                key=key, node_id=-1, host="", port=-1, error_code=int(code), error_message=code.message
            )
            for key in request.coordinator_keys
        ]
    return schema.encode_response(response, version)


API: Final = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    backend=Backend.COORDINATOR,
    dispatch=Forward(unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE),
    refuse=refuse,
)

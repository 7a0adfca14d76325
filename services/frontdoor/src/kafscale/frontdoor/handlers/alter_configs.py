"""AlterConfigs (33): v0-2.   v2 flexible. Replaces the whole set of a resource.
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_configs as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    results = [
        schema.AlterConfigsResponseResource(
            error_code=int(code),
            error_message=code.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return schema.encode_response(schema.AlterConfigsResponse(responses=results), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
    repeatable=False,
)

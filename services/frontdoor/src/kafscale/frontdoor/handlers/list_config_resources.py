"""ListConfigResources (74): v0-1.   v0 client metrics alone · v1 types of resources
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_config_resources as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    schema.decode_request(body, version)
    return schema.encode_response(schema.ListConfigResourcesResponse(error_code=int(code)), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
)

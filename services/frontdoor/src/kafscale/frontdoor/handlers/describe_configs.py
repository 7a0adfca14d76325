"""DescribeConfigs (32): v0-4.   v1 sources and synonyms · v3 documentation · v4 flexible
Admin answers; reading twice does no harm. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_configs as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    results = [
        schema.DescribeConfigsResponseResult(
            error_code=int(code),
            error_message=code.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        for resource in request.resources
    ]
    return schema.encode_response(schema.DescribeConfigsResponse(results=results), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
)

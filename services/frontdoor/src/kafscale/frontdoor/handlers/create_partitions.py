"""CreatePartitions (37): v0-3.   v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_partitions as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    results = [
        schema.CreatePartitionsResponseTopicResult(
            name=topic.name, error_code=int(code), error_message=code.message
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.CreatePartitionsResponse(results=results), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
    repeatable=False,
)

"""CreateTopics (19): v0-7.   v1 validate_only · v4 default counts · v5 configs in the answer, flexible · v7 topic ids
Admin decides. Certainly not executed: NOT_CONTROLLER, on which admin clients try again by themselves;
outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    topics = [
        schema.CreateTopicsResponseTopicResult(
            name=topic.name, error_code=int(code), error_message=code.message, configs=None
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.CreateTopicsResponse(topics=topics), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
    repeatable=False,
)

"""DeleteTopics (20): v0-6.   v4 flexible · v5 error messages · v6 topic ids
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_topics as schema

TOPIC_IDS_FROM: Final = 6


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    if version >= TOPIC_IDS_FROM:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        named = [(name, bytes(16)) for name in request.topic_names]
    results = [
        schema.DeleteTopicsResponseTopicResult(
            name=name, topic_id=topic_id, error_code=int(code), error_message=code.message
        )
        for name, topic_id in named
    ]
    return schema.encode_response(schema.DeleteTopicsResponse(responses=results), version)


API: Final = to_admin(ApiKey.DELETE_TOPICS, (0, 6), refuse, repeatable=False)

"""Metadata (3): v0-13.   v1 null = all · v4 auto-creation asked for · v9 flexible · v10 topic ids · v13 error
Admin answers. While none is there, the topics asked for by name are LEADER_NOT_AVAILABLE, which every
client retries, under the brokers this process knows. "All topics" cannot be answered without admin: an
empty list would be a false statement, so the connection is closed, and the client asks again.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import metadata as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    if request.topics is None or (version == 0 and not request.topics):
        raise WireError(
            "Metadata", "all topics were asked for, and no admin service is there", version=version
        )
    topics = [
        schema.MetadataResponseTopic(
            error_code=int(code),
            name=topic.name if topic.name is not None or version >= 12 else "",
            topic_id=topic.topic_id,
            partitions=[],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.MetadataResponse(topics=topics, brokers=[]), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.LEADER_NOT_AVAILABLE,
)

"""OffsetForLeaderEpoch (23): v0-4.   v3 replica id · v4 flexible
Any fetch instance answers for every partition. While none is there: NOT_LEADER_OR_FOLLOWER.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_for_leader_epoch as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    topics = [
        schema.OffsetForLeaderEpochResponseTopicResult(
            topic=topic.topic,
            partitions=[
                schema.OffsetForLeaderEpochResponseEnd(error_code=int(code), partition=entry.partition)
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.OffsetForLeaderEpochResponse(topics=topics), version)


POLICY: Final = Policy(
    backend=Backend.FETCH,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    carries_revision=True,
)

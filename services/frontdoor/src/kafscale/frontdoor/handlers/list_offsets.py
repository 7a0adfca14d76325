"""ListOffsets (2): v0-11.   v1 one offset · v2 isolation · v4 leader epoch · v6 flexible · v7 max timestamp
· v8 earliest local
Any fetch instance answers for every partition. While none is there: NOT_LEADER_OR_FOLLOWER, on which
clients read the metadata again and come back.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_offsets as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    topics = [
        schema.ListOffsetsResponseTopic(
            name=topic.name,
            partitions=[
                schema.ListOffsetsResponsePartition(
                    partition_index=entry.partition_index, error_code=int(code)
                )
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.ListOffsetsResponse(topics=topics), version)


POLICY: Final = Policy(
    backend=Backend.FETCH,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    carries_revision=True,
)

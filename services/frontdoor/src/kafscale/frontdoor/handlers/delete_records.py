"""DeleteRecords (21): v0-2.   v2 flexible
Admin decides, and its reply tells from which revision on fetch services know the new log starts. Certainly
not executed: NOT_LEADER_OR_FOLLOWER, on which admin clients look for the leader again; outcome unknown:
REQUEST_TIMED_OUT, and nothing is repeated here, since -1 would mean another offset by then.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_records as schema

NO_LOW_WATERMARK: Final = -1


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    topics = [
        schema.DeleteRecordsResponseTopicResult(
            name=topic.name,
            partitions=[
                schema.DeleteRecordsResponsePartitionResult(
                    partition_index=part.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=int(code)
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.DeleteRecordsResponse(topics=topics), version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    repeatable=False,
    moves_log_starts=True,
)

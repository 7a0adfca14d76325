"""OffsetCommit (8): v0-10.   v1 members · v6 leader epochs · v7 static members · v8 flexible · v10 topic ids
To the coordinator of the group's slot, once (see group_calls.py): sent a second time it could overwrite a newer one.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost, perhaps committed. On both clients commit again, or give
up in favour of their next commit. One that is older than `AGE_MS_MAX` takes no effect any more: clients give up after
ten seconds or more, and what they commit next, perhaps by another front door, must not be overwritten.
Versions 0 and 1, which Kafka 4 has dropped, go to the same store.
"""

from typing import Final

from kafscale.frontdoor.group_calls import GroupPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    topics = [
        schema.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                schema.OffsetCommitResponsePartition(
                    partition_index=entry.partition_index, error_code=int(code)
                )
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.OffsetCommitResponse(topics=topics), version)


AGE_MS_MAX: Final = 5_000
"""Kafka's offsets.commit.timeout.ms."""

POLICY: Final = GroupPolicy(refuse=refuse, flexible_from=schema.FLEXIBLE_FROM, age_ms_max=AGE_MS_MAX)

"""OffsetCommit (8): v0-10.   v1 members · v6 leader epochs · v7 static members · v8 flexible · v10 topic ids
To the coordinator of the group's slot, once (see group_calls.py): sent a second time it could overwrite a newer one.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost, perhaps committed. On both clients commit again, or give
up in favour of their next commit. One that is older than `AGE_MS_MAX` takes no effect any more: clients give up after
ten seconds or more, and their next commit, perhaps by another front door, must not be overwritten.
Versions 0 and 1, which Kafka 4 has dropped, go to the same store.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import each_partition
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import offset_commit as schema

API: Final = to_group(
    ApiKey.OFFSET_COMMIT,
    (0, 10),
    each_partition(
        schema,
        schema.OffsetCommitResponse,
        schema.OffsetCommitResponseTopic,
        schema.OffsetCommitResponsePartition,
        names=("name", "topic_id"),
        number="partition_index",
    ),
    age_ms_max=AGE_MS_MAX,
)

"""DeleteRecords (21): v0-2.   v2 flexible
Admin decides. Its reply carries the revision from which fetch services know the new log starts. Certainly not
executed: NOT_LEADER_OR_FOLLOWER, on which admin clients find the leader again. Outcome unknown: REQUEST_TIMED_OUT, and
the front door does not retry, since -1 would mean another offset by then.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import each_partition
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_records as schema

API: Final = Api(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER, repeatable=False, moves_log_starts=True),
    refuse=each_partition(
        schema,
        schema.DeleteRecordsResponse,
        schema.DeleteRecordsResponseTopicResult,
        schema.DeleteRecordsResponsePartitionResult,
        names=("name",),
        number="partition_index",
        low_watermark=-1,
    ),
    exclusive=True,
)

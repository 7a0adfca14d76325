"""OffsetForLeaderEpoch (23): v0-4.   v3 replica id · v4 flexible
Any fetch instance answers for every partition. While none is there: NOT_LEADER_OR_FOLLOWER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Forward
from kafscale.frontdoor.refusals import each_partition
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_for_leader_epoch as schema

API: Final = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(0, 4),
    backend=Backend.FETCH,
    dispatch=Forward(unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER, carries_revision=True),
    refuse=each_partition(
        schema,
        schema.OffsetForLeaderEpochResponse,
        schema.OffsetForLeaderEpochResponseTopicResult,
        schema.OffsetForLeaderEpochResponseEnd,
        names=("topic",),
        number="partition",
    ),
    reads=Area.RECORDS,
)

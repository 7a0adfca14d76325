"""ListOffsets (2): v0-11.   v1 one offset · v2 isolation · v4 leader epoch · v6 flexible · v7 max timestamp
· v8 earliest local
Any fetch instance answers for every partition. While none is there: NOT_LEADER_OR_FOLLOWER, on which
clients read the metadata again and come back.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Forward
from kafscale.frontdoor.refusals import each_partition
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_offsets as schema

API: Final = Api(
    key=ApiKey.LIST_OFFSETS,
    versions=(0, 11),
    backend=Backend.FETCH,
    dispatch=Forward(unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER, carries_revision=True),
    refuse=each_partition(
        schema,
        schema.ListOffsetsResponse,
        schema.ListOffsetsResponseTopic,
        schema.ListOffsetsResponsePartition,
        names=("name",),
        number="partition_index",
    ),
    reads=Area.RECORDS,
)

"""ListPartitionReassignments (46): v0-0 (KIP-455)
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_partition_reassignments as schema

API: Final = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER),
    refuse=whole(schema, schema.ListPartitionReassignmentsResponse),
)

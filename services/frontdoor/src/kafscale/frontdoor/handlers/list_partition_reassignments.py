"""ListPartitionReassignments (46): v0-0 (KIP-455)
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import list_partition_reassignments as schema

API: Final = to_admin(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), whole(schema, schema.ListPartitionReassignmentsResponse)
)

"""ListPartitionReassignments (46): v0-0 (KIP-455)

There are no replicas, so no partition is ever reassigned. The answer is empty, as a Kafka broker's is while no
reassignment is in progress.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answering
from kafscale.wire.schema import list_partition_reassignments as api


@answering(api)
async def handler(
    _context: AdminContext, _: api.ListPartitionReassignmentsRequest
) -> api.ListPartitionReassignmentsResponse:
    return api.ListPartitionReassignmentsResponse(error_message=None)

"""ListPartitionReassignments (46): v0-0 (KIP-455)

There are no replicas, so no partition is ever reassigned. The answer is empty, as a Kafka broker's is while no
reassignment is in progress.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.fixed_answers import fixed_answer
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    decode_request,
    encode_response,
)


def handler(_: AdminContext) -> AsyncHandler:
    return fixed_answer(decode_request, _none_listed, encode_response)


def _none_listed(_: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)

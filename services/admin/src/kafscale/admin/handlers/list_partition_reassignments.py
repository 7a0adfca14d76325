"""ListPartitionReassignments (46): v0-0 (KIP-455)

There are no replicas, so no partition is ever on its way to others: none is listed, whichever are asked for, as a Kafka
broker answers while none is under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    decode_request,
    encode_response,
)


def handler(_: AdminContext) -> AsyncHandler:
    async def list_partition_reassignments(inbound: InboundRequest) -> Sequence[Buffer]:
        decode_request(inbound.body, inbound.meta.api_version)
        answer = ListPartitionReassignmentsResponse(error_message=None)
        return answered(inbound, answer, encode_response)

    return list_partition_reassignments

"""ListPartitionReassignments (46): v0-0 (KIP-455)
Admin answers. While none is there: NOT_CONTROLLER. An error names the partitions of the request, as Kafka's does.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import failed
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_partition_reassignments as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
    asked = schema.decode_request(body, version).topics or []
    topics = [
        schema.ListPartitionReassignmentsResponseOngoingTopicReassignment(
            name=topic.name,
            partitions=[
                schema.ListPartitionReassignmentsResponseOngoingReassignment(partition_index=index)
                for index in topic.partition_indexes
            ],
        )
        for topic in asked
    ]
    answer = failed(schema.ListPartitionReassignmentsResponse, code, topics=topics)
    return schema.encode_response(answer, version)


API: Final = to_admin(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), refuse)

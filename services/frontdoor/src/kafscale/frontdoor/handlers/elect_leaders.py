"""ElectLeaders (43): v0-2.   v1 election type, error of the whole answer · v2 flexible
Admin answers; nothing is ever changed, so it may be asked twice. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import elect_leaders as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    """The error is in each partition too, because v0 has no other place for it."""
    request = schema.decode_request(body, version)
    results = [
        schema.ElectLeadersResponseReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                schema.ElectLeadersResponsePartitionResult(
                    partition_id=number, error_code=int(code), error_message=code.message
                )
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or []
    ]
    response = schema.ElectLeadersResponse(error_code=int(code), replica_election_results=results)
    return schema.encode_response(response, version)


API: Final = to_admin(ApiKey.ELECT_LEADERS, (0, 2), refuse, large_answer=True)

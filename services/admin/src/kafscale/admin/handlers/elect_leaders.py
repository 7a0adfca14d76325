"""ElectLeaders (43): v0-2.   v1 election type, error of the whole answer (KIP-460) · v2 flexible

Every front door serves every partition, so no election changes anything: ELECTION_NOT_NEEDED for each existing
partition of the request. If all partitions are requested (null), the answer is empty, as in Kafka if no partition
needs an election. A partition that is named twice is answered once. UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST for
an unknown election type, and if the answer would be too large (v0 has no field for it and then answers without
partitions).
"""

from __future__ import annotations

from kafscale.admin.cluster_view import active_by_name
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import elect_leaders as api

PREFERRED, UNCLEAN = 0, 1
RESULT_BYTES = 80
"""Of a partition with its message, at most, without the topic's name in the message."""


@answering(api)
async def handler(context: AdminContext, request: api.ElectLeadersRequest) -> api.ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return api.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topic_partitions or []:
        wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    room = AnswerRoom(context.settings.answer_bytes_max)
    results = []
    for name, numbers in wanted.items():
        if not room.take((RESULT_BYTES + len(name.encode())) * (1 + len(numbers))):
            return api.ElectLeadersResponse(error_code=TOO_LARGE)
        topic = active_by_name(context, name)
        partitions = [_result(number, _outcome(name, topic, number)) for number in numbers]
        results.append(api.ElectLeadersResponseReplicaElectionResult(topic=name, partition_result=partitions))
    return api.ElectLeadersResponse(replica_election_results=results)


def _result(number: int, outcome: Refused) -> api.ElectLeadersResponsePartitionResult:
    return api.ElectLeadersResponsePartitionResult(
        partition_id=number, error_code=outcome.error, error_message=outcome.message
    )


def _outcome(name: str, topic: Topic | None, number: int) -> Refused:
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= number < topic.partitions:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    return Refused(ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)

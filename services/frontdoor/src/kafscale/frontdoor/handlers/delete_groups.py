"""DeleteGroups (42): v0-2.   v2 flexible
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group. A
group whose deletion was done but lost is then GROUP_ID_NOT_FOUND, as it is with Kafka.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.group_calls import BatchPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_groups as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    results = [unserved(group, code) for group in request.groups_names]
    return schema.encode_response(schema.DeleteGroupsResponse(results=results), version)


def unserved(group: str, code: ErrorCode) -> schema.DeleteGroupsResponseGroupResult:
    return schema.DeleteGroupsResponseGroupResult(group_id=group, error_code=int(code))


class DeleteGroupsBatch:
    def __init__(self, body: memoryview, version: int) -> None:
        self._version = version
        self._throttle_time_ms = 0
        self.groups = schema.decode_request(body, version).groups_names

    def share(self, places: Sequence[int]) -> list[Buffer]:
        share = schema.DeleteGroupsRequest(groups_names=[self.groups[place] for place in places])
        return schema.encode_request(share, self._version)

    def read(self, body: memoryview) -> list[tuple[str, schema.DeleteGroupsResponseGroupResult]]:
        response = schema.decode_response(body, self._version)
        self._throttle_time_ms = max(self._throttle_time_ms, response.throttle_time_ms)
        return [(result.group_id, result) for result in response.results]

    def unserved(self, place: int, code: ErrorCode) -> schema.DeleteGroupsResponseGroupResult:
        return unserved(self.groups[place], code)

    def join(self, found: Sequence[schema.DeleteGroupsResponseGroupResult]) -> list[Buffer]:
        response = schema.DeleteGroupsResponse(throttle_time_ms=self._throttle_time_ms, results=list(found))
        return schema.encode_response(response, self._version)


POLICY: Final = BatchPolicy(open=DeleteGroupsBatch, refuse=refuse)

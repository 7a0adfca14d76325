"""DescribeGroups (15): v0-6.   v3 authorized operations · v4 static members · v5 flexible · v6 error messages
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.group_calls import BatchPolicy
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_groups as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    groups = [unserved(group, code) for group in request.groups]
    return schema.encode_response(schema.DescribeGroupsResponse(groups=groups), version)


def unserved(group: str, code: ErrorCode) -> schema.DescribeGroupsResponseDescribedGroup:
    return schema.DescribeGroupsResponseDescribedGroup(
        error_code=int(code), error_message=code.message, group_id=group
    )


class DescribeGroupsBatch:
    def __init__(self, body: memoryview, version: int) -> None:
        self._version = version
        self._request = schema.decode_request(body, version)
        self._throttle_time_ms = 0
        self.groups = self._request.groups

    def share(self, places: Sequence[int]) -> list[Buffer]:
        share = schema.DescribeGroupsRequest(
            groups=[self.groups[place] for place in places],
            include_authorized_operations=self._request.include_authorized_operations,
        )
        return schema.encode_request(share, self._version)

    def read(self, body: memoryview) -> list[tuple[str, schema.DescribeGroupsResponseDescribedGroup]]:
        response = schema.decode_response(body, self._version)
        self._throttle_time_ms = max(self._throttle_time_ms, response.throttle_time_ms)
        return [(group.group_id, group) for group in response.groups]

    def unserved(self, place: int, code: ErrorCode) -> schema.DescribeGroupsResponseDescribedGroup:
        return unserved(self.groups[place], code)

    def join(self, found: Sequence[schema.DescribeGroupsResponseDescribedGroup]) -> list[Buffer]:
        response = schema.DescribeGroupsResponse(throttle_time_ms=self._throttle_time_ms, groups=list(found))
        return schema.encode_response(response, self._version)


POLICY: Final = BatchPolicy(open=DescribeGroupsBatch, refuse=refuse)

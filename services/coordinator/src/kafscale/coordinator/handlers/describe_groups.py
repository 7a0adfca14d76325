"""DescribeGroups (15): v0-6.   v3 authorized operations · v4 static members · v6 GROUP_ID_NOT_FOUND (KIP-1043)

An unknown group, and one of the other protocol, is Dead: without error up to v5, GROUP_ID_NOT_FOUND from v6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafscale.coordinator.classic.queries import describe
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_groups import (
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
    decode_request,
    encode_response,
)

GROUP_ID_NOT_FOUND_FROM = 6
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS = sum(1 << code for code in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
"""KIP-430: the operations that are allowed on a group, as bits. Without an authorizer all are allowed, as in Kafka."""
DEAD = "Dead"


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def describe_groups(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = decode_request(inbound.body, version)
        room = AnswerRoom(context.answer_bytes_max)
        names = dict.fromkeys(request.groups)
        answer = DescribeGroupsResponse(groups=[_group(context, name, version, room) for name in names])
        if request.include_authorized_operations:
            for group in answer.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return answered(inbound, answer, encode_response)

    return describe_groups


def _group(
    context: CoordinatorContext, name: str, version: int, room: AnswerRoom
) -> DescribeGroupsResponseDescribedGroup:
    try:
        actor = context.groups.find(name)
    except GroupFailed as failed:
        return _refused(name, failed.error, failed.error.message)
    if actor is None or not context.groups.is_classic(actor) or not actor.type.exists(actor.group):
        reported = version >= GROUP_ID_NOT_FOUND_FROM
        return DescribeGroupsResponseDescribedGroup(
            group_id=name,
            group_state=DEAD,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if reported else ErrorCode.NONE,
            error_message=f"Group {name} not found." if reported else None,
        )
    found = describe(name, actor.group)
    fits = room.take(sum(map(_size, found.members), ENTRY_BYTES))
    return found if fits else _refused(name, TOO_LARGE, room.refusal)


def _refused(name: str, error: ErrorCode, why: str) -> DescribeGroupsResponseDescribedGroup:
    return DescribeGroupsResponseDescribedGroup(group_id=name, error_code=error, error_message=why)


def _size(member: DescribeGroupsResponseDescribedGroupMember) -> int:
    texts = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    return ENTRY_BYTES + text_bytes(texts) + len(member.member_metadata) + len(member.member_assignment)


def text_bytes(texts: Iterable[str | None]) -> int:
    return sum(len(text.encode()) for text in texts if text)

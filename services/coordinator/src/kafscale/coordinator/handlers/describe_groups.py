"""DescribeGroups (15): v0-6.   v3 authorized operations · v4 static members · v6 GROUP_ID_NOT_FOUND (KIP-1043)

An unknown group, and one of the other protocol, is Dead: without error up to v5, GROUP_ID_NOT_FOUND from v6, whose
text says which of the two it is, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafscale.access.acl import ResourceType
from kafscale.coordinator.classic.queries import describe
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_groups as api

GROUP_ID_NOT_FOUND_FROM = 6
DEAD = "Dead"


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.DescribeGroupsRequest, meta: RequestMeta
) -> api.DescribeGroupsResponse:
    version = meta.api_version
    room = AnswerRoom(context.settings.answer_bytes_max)
    names = dict.fromkeys(request.groups)
    answer = api.DescribeGroupsResponse(groups=[_group(context, name, version, room) for name in names])
    if request.include_authorized_operations:
        asker = context.authorization.of(meta)
        for group in answer.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = asker.operations(ResourceType.GROUP, group.group_id)
    return answer


def _group(
    context: CoordinatorContext, name: str, version: int, room: AnswerRoom
) -> api.DescribeGroupsResponseDescribedGroup:
    try:
        actor = context.groups.find(name)
    except GroupFailed as failed:
        return _refused(name, failed.error, failed.error.message)
    if actor is None or not actor.type.exists(actor.group):
        return _dead(name, version, f"Group {name} not found.")
    if not context.groups.is_classic(actor):
        return _dead(name, version, f"Group {name} is not a classic group.")
    found = describe(name, actor.group)
    fits = room.take(sum(map(_size, found.members), ENTRY_BYTES))
    return found if fits else _refused(name, TOO_LARGE, room.refusal)


def _dead(name: str, version: int, why: str) -> api.DescribeGroupsResponseDescribedGroup:
    reported = version >= GROUP_ID_NOT_FOUND_FROM
    return api.DescribeGroupsResponseDescribedGroup(
        group_id=name,
        group_state=DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if reported else ErrorCode.NONE,
        error_message=why if reported else None,
    )


def _refused(name: str, error: ErrorCode, why: str) -> api.DescribeGroupsResponseDescribedGroup:
    return api.DescribeGroupsResponseDescribedGroup(group_id=name, error_code=error, error_message=why)


def _size(member: api.DescribeGroupsResponseDescribedGroupMember) -> int:
    texts = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    return ENTRY_BYTES + text_bytes(texts) + len(member.member_metadata) + len(member.member_assignment)


def text_bytes(texts: Iterable[str | None]) -> int:
    return sum(len(text.encode()) for text in texts if text)

"""LeaveGroup (13): v0-5.   v3 several members, by instance id as well (KIP-345) · v5 reasons (KIP-800)

Errors: UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID by member, and those of every group call.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import InstanceId, Leave, Leaver, LeaveReply, MemberId, Token
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.schema import leave_group as api

BATCHED_FROM = 3


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.LeaveGroupRequest, meta: RequestMeta
) -> api.LeaveGroupResponse:
    leaving = leavers(request, meta.api_version)
    try:
        actor = context.groups.classic_group(request.group_id)
        reply = await actor.ask(lambda token: Leave(token=Token(token), leavers=leaving))
    except GroupFailed as failed:
        reply = LeaveReply(token=Token(0), error=failed.error)
    return response(reply, meta.api_version)


def leavers(request: api.LeaveGroupRequest, version: int) -> tuple[Leaver, ...]:
    if version < BATCHED_FROM:
        return (Leaver(member_id=MemberId(request.member_id)),)
    return tuple(
        Leaver(
            member_id=MemberId(each.member_id),
            instance_id=None if each.group_instance_id is None else InstanceId(each.group_instance_id),
        )
        for each in request.members
    )


def response(reply: LeaveReply, version: int) -> api.LeaveGroupResponse:
    """Before v3 the response has the error of the only member."""
    if version < BATCHED_FROM:
        return api.LeaveGroupResponse(error_code=reply.leavers[0].error if reply.leavers else reply.error)
    return api.LeaveGroupResponse(
        error_code=reply.error,
        members=[
            api.LeaveGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, error_code=each.error
            )
            for each in reply.leavers
        ],
    )

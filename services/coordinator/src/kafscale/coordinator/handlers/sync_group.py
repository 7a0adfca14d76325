"""SyncGroup (14): v0-5.   v3 static members (KIP-345) · v5 protocol type and name are checked (KIP-559)

Waits for the leader's assignment. Errors: the machine's (classic/sync.py), those of every group call, and
UNKNOWN_MEMBER_ID for a group that does not exist.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import Generation, InstanceId, MemberId, Sync, SyncReply, Token
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answering
from kafscale.wire.schema import sync_group as api


@answering(api)
async def handler(context: CoordinatorContext, request: api.SyncGroupRequest) -> api.SyncGroupResponse:
    try:
        actor = context.groups.classic_group(request.group_id)
        reply = await actor.ask(lambda token: event(request, Token(token)))
    except GroupFailed as failed:
        reply = SyncReply(token=Token(0), error=failed.error)
    return api.SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def event(request: api.SyncGroupRequest, token: Token) -> Sync:
    instance = request.group_instance_id
    return Sync(
        token=token,
        generation=Generation(request.generation_id),
        member_id=MemberId(request.member_id),
        instance_id=None if instance is None else InstanceId(instance),
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((MemberId(each.member_id), each.assignment) for each in request.assignments),
    )

"""Heartbeat (12): v0-4.   v3 static members (KIP-345)

Errors: the machine's (classic/requests.py) and those of every group call. Writes nothing.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import Generation, Heartbeat, InstanceId, MemberId, Token
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answering
from kafscale.wire.schema import heartbeat as api


@answering(api)
async def handler(context: CoordinatorContext, request: api.HeartbeatRequest) -> api.HeartbeatResponse:
    try:
        actor = context.groups.classic_group(request.group_id)
        error = (await actor.ask(lambda token: event(request, Token(token)))).error
    except GroupFailed as failed:
        error = failed.error
    return api.HeartbeatResponse(error_code=error)


def event(request: api.HeartbeatRequest, token: Token) -> Heartbeat:
    instance = request.group_instance_id
    return Heartbeat(
        token=token,
        generation=Generation(request.generation_id),
        member_id=MemberId(request.member_id),
        instance_id=None if instance is None else InstanceId(instance),
    )

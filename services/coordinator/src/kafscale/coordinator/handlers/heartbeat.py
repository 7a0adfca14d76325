"""Heartbeat (12): v0-4.   v3 static members (KIP-345)

Errors: the machine's (classic/requests.py) and those of every group call. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.classic.model import Generation, Heartbeat, InstanceId, MemberId, Token
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema.heartbeat import (
    HeartbeatRequest,
    HeartbeatResponse,
    decode_request,
    encode_response,
)


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def heartbeat(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        try:
            actor = context.groups.classic_group(request.group_id)
            error = (await actor.ask(lambda token: event(request, Token(token)))).error
        except GroupFailed as failed:
            error = failed.error
        return answered(inbound, HeartbeatResponse(error_code=error), encode_response)

    return heartbeat


def event(request: HeartbeatRequest, token: Token) -> Heartbeat:
    instance = request.group_instance_id
    return Heartbeat(
        token=token,
        generation=Generation(request.generation_id),
        member_id=MemberId(request.member_id),
        instance_id=None if instance is None else InstanceId(instance),
    )

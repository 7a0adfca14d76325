"""SyncGroup (14): v0-5.   v3 static members (KIP-345) · v5 protocol type and name are checked (KIP-559)

Waits for the leader's assignment. Errors: the machine's (classic/sync.py), those of every group call, and
UNKNOWN_MEMBER_ID for a group that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.classic.model import Generation, InstanceId, MemberId, Sync, SyncReply, Token
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema.sync_group import (
    SyncGroupRequest,
    SyncGroupResponse,
    decode_request,
    encode_response,
)


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def sync_group(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        try:
            actor = context.groups.classic_group(request.group_id)
            reply = await actor.ask(lambda token: event(request, Token(token)))
        except GroupFailed as failed:
            reply = SyncReply(token=Token(0), error=failed.error)
        answer = SyncGroupResponse(
            error_code=reply.error,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignment=reply.assignment,
        )
        return answered(inbound, answer, encode_response)

    return sync_group


def event(request: SyncGroupRequest, token: Token) -> Sync:
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

"""JoinGroup (11): v0-9.   v4 MEMBER_ID_REQUIRED (KIP-394) · v5 static members (KIP-345) · v9 skip assignment (KIP-814)

Waits until the rebalance is over. Errors: the machine's (classic/join.py), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID, INCONSISTENT_GROUP_PROTOCOL for a group of the other type.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import NO_MEMBER_ID, InstanceId, Join, JoinReply, MemberId, Token
from kafscale.coordinator.context import CoordinatorContext, client_host
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.etcd_space import Use
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.system import random_uuid
from kafscale.wire.schema import join_group as api

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
PROTOCOL_TYPE_FROM = 7
ID_PREFIX_CHARS_MAX = 200
"""Of the client id or instance id that starts a new member id."""


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.JoinGroupRequest, meta: RequestMeta
) -> api.JoinGroupResponse:
    try:
        context.groups.need_room(Use.KNOWN, sum(len(each.metadata) for each in request.protocols))
        actor = context.groups.joined(request.group_id)
        reply = await actor.ask(lambda token: event(request, meta, Token(token)))
    except GroupFailed as failed:
        reply = JoinReply(token=Token(0), error=failed.error, member_id=MemberId(request.member_id))
    return response(reply, meta.api_version)


def event(request: api.JoinGroupRequest, meta: RequestMeta, token: Token) -> Join:
    instance = request.group_instance_id
    client_id = meta.client_id or ""
    return Join(
        token=token,
        member_id=MemberId(request.member_id) or NO_MEMBER_ID,
        fresh_id=MemberId(f"{(instance or client_id)[:ID_PREFIX_CHARS_MAX]}-{random_uuid()}"),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=None if instance is None else InstanceId(instance),
        client_id=client_id,
        client_host=client_host(meta),
        needs_known_id=meta.api_version >= MEMBER_ID_REQUIRED_FROM,
        may_skip_assignment=meta.api_version >= SKIP_ASSIGNMENT_FROM,
    )


def response(reply: JoinReply, version: int) -> api.JoinGroupResponse:
    """Below v7 the protocol name is never null."""
    name = reply.protocol_name
    return api.JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=name if version >= PROTOCOL_TYPE_FROM else name or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            api.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata or b"",
            )
            for member in reply.members
        ],
    )

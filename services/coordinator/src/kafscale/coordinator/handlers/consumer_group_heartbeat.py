"""ConsumerGroupHeartbeat (68): v0-1.   v0 the coordinator creates member ids · v1 clients create them, and regular
expressions

Errors: the machine's (consumer/machine.py), those of every group call, GROUP_ID_NOT_FOUND while the group has members
of the classic protocol, and INVALID_REQUEST without a group id. TOPIC_AUTHORIZATION_FAILED if the client may not
describe one of the topics that it names.
"""

from __future__ import annotations

import base64

from kafscale.access.principals import ANONYMOUS
from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.consumer.model import Heartbeat, HeartbeatReply, Partitions
from kafscale.coordinator.context import CoordinatorContext, client_host
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.etcd_space import Use
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.keys import TopicId
from kafscale.storage.system import random_uuid
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat as api

NEEDS = needs_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, Side.SERVICE)
OF_NAMES, _ = NEEDS  # `subscriptions.py` asks the other one, of topics that an expression matches
JOINING = 0
"""The epoch of a member that joins."""


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.ConsumerGroupHeartbeatRequest, meta: RequestMeta
) -> api.ConsumerGroupHeartbeatResponse:
    if not request.group_id:
        return api.ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="GroupId can't be empty."
        )
    asker = context.authorization.of(meta)
    if asker.denied(OF_NAMES, request.subscribed_topic_names or ()):
        return api.ConsumerGroupHeartbeatResponse(error_code=OF_NAMES.code)
    principal = ""
    if context.authorization.authorizer is not None:
        principal = meta.principal or ANONYMOUS
        context.follow_acls()
    try:
        if request.member_epoch == JOINING:
            context.groups.need_room(Use.KNOWN, sum(map(len, request.subscribed_topic_names or ())))
        actor = context.groups.consumer_group(request.group_id)
        reply = await actor.ask(lambda token: event(request, meta, token, principal))
    except GroupFailed as failed:
        reply = HeartbeatReply(token=0, error=failed.error, message=_why(failed.error, request.group_id))
    return response(reply)


def _why(error: ErrorCode, group_id: str) -> str | None:
    """The text of an error that is no answer of the group's own machine."""
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        return (
            f"Group {group_id} has members of the classic protocol. It takes members of the consumer protocol when "
            "those have left."
        )
    return None


def event(
    request: api.ConsumerGroupHeartbeatRequest, meta: RequestMeta, token: int, principal: str = ""
) -> Heartbeat:
    """`principal`: of the client; empty without an authorizer."""
    names = request.subscribed_topic_names
    return Heartbeat(
        token=token,
        fresh_id=""
        if request.member_id
        else base64.urlsafe_b64encode(random_uuid().bytes).decode().rstrip("="),
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_names=None if names is None else tuple(names),
        subscribed_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        client_id=meta.client_id or "",
        client_host=client_host(meta),
        principal=principal,
        version=meta.api_version,
    )


def _owned(request: api.ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return {
        TopicId(each.topic_id): frozenset(each.partitions)
        for each in request.topic_partitions
        if each.partitions
    }


def response(reply: HeartbeatReply) -> api.ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = api.ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=[
                api.ConsumerGroupHeartbeatResponseTopicPartitions(
                    topic_id=topic_id, partitions=sorted(partitions)
                )
                for topic_id, partitions in sorted(reply.assignment.items())
            ]
        )
    return api.ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )

"""ConsumerGroupDescribe (69): v0-1.   v1 member types

GROUP_ID_NOT_FOUND for a group that does not exist or is a classic group. TOPIC_AUTHORIZATION_FAILED, without members,
for a group with a topic in an assignment that the client may not describe.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.access.acl import ResourceType
from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.consumer.machine import preferred_assignor, state_of
from kafscale.coordinator.consumer.model import (
    MEMBER_TYPE_CONSUMER,
    NOTHING,
    Group,
    Member,
    Partitions,
    Rules,
)
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.handlers.describe_groups import text_bytes
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.keys import TopicId
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_describe as api

NEEDS = needs_of(ApiKey.CONSUMER_GROUP_DESCRIBE, Side.SERVICE)
(DESCRIBE_TOPIC,) = NEEDS
HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.ConsumerGroupDescribeRequest, meta: RequestMeta
) -> api.ConsumerGroupDescribeResponse:
    room = AnswerRoom(context.settings.answer_bytes_max)
    names = dict.fromkeys(request.group_ids)
    asker = context.authorization.of(meta)
    answer = api.ConsumerGroupDescribeResponse(
        groups=[_hidden(_group(context, name, room), asker) for name in names]
    )
    if request.include_authorized_operations:
        for group in answer.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = asker.operations(ResourceType.GROUP, group.group_id)
    return answer


def _hidden(
    group: api.ConsumerGroupDescribeResponseDescribed, asker: Asker
) -> api.ConsumerGroupDescribeResponseDescribed:
    """The group, or its error if the client may not describe one of its topics."""
    names = (
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )
    if asker.denied(DESCRIBE_TOPIC, names):
        return _refused(group.group_id, DESCRIBE_TOPIC.code, HIDDEN)
    return group


def _group(
    context: CoordinatorContext, name: str, room: AnswerRoom
) -> api.ConsumerGroupDescribeResponseDescribed:
    if not name:
        return _refused(name, ErrorCode.INVALID_GROUP_ID, None)
    try:
        actor = context.groups.find(name)
    except GroupFailed as failed:
        return _refused(name, failed.error, failed.error.message)
    if actor is None or not actor.type.exists(actor.group):
        return _refused(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    if context.groups.is_classic(actor):
        return _refused(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
    found = describe(actor.group, context.settings.consumer_rules())
    fits = room.take(sum(map(_size, found.members), ENTRY_BYTES))
    return found if fits else _refused(name, TOO_LARGE, room.refusal)


def _refused(name: str, error: ErrorCode, why: str | None) -> api.ConsumerGroupDescribeResponseDescribed:
    """Kafka's admin client shows this API's message for a group that DescribeGroups does not find either."""
    return api.ConsumerGroupDescribeResponseDescribed(group_id=name, error_code=error, error_message=why)


def _size(member: api.ConsumerGroupDescribeResponseMember) -> int:
    topics = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    who = (member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host)
    texts = text_bytes((*who, member.subscribed_topic_regex, *member.subscribed_topic_names))
    return texts + sum((ENTRY_BYTES + 8 * len(topic.partitions) for topic in topics), ENTRY_BYTES)


def describe(group: Group, rules: Rules) -> api.ConsumerGroupDescribeResponseDescribed:
    persisted = group.persisted
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    return api.ConsumerGroupDescribeResponseDescribed(
        group_id=persisted.group_id,
        error_message=None,
        group_state=state_of(persisted).value,
        group_epoch=persisted.epoch,
        assignment_epoch=persisted.target_epoch,
        assignor_name=preferred_assignor(persisted, rules).value,
        members=[
            _member(member, persisted.target.get(member_id, NOTHING), names)
            for member_id, member in sorted(persisted.members.items())
        ],
    )


def _member(
    member: Member, target: Partitions, names: Mapping[TopicId, str]
) -> api.ConsumerGroupDescribeResponseMember:
    return api.ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.names),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(target, names),
        member_type=MEMBER_TYPE_CONSUMER,
    )


def _assignment(
    partitions: Partitions, names: Mapping[TopicId, str]
) -> api.ConsumerGroupDescribeResponseAssignment:
    """By topic name; without deleted topics, as in Kafka."""
    known = sorted((names[topic_id], topic_id) for topic_id in partitions if topic_id in names)
    return api.ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            api.ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(partitions[topic_id])
            )
            for name, topic_id in known
        ]
    )

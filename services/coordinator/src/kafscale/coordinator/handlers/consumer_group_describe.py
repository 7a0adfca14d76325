"""ConsumerGroupDescribe (69): v0-1.   v1 member types

GROUP_ID_NOT_FOUND for a group that is not there or is of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.consumer.describe import DescribedMember, DescribedTopic, describe
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.handlers.describe_groups import GROUP_OPERATIONS, text_bytes
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribed,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
    decode_request,
    encode_response,
)


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def consumer_group_describe(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        room = AnswerRoom(context.answer_bytes_max)
        names = dict.fromkeys(request.group_ids)
        answer = ConsumerGroupDescribeResponse(groups=[_group(context, name, room) for name in names])
        if request.include_authorized_operations:
            for group in answer.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return answered(inbound, answer, encode_response)

    return consumer_group_describe


def _group(
    context: CoordinatorContext, name: str, room: AnswerRoom
) -> ConsumerGroupDescribeResponseDescribed:
    try:
        actor = context.groups.find(name)
    except GroupFailed as failed:
        return _refused(name, failed.error, failed.error.message)
    if actor is None or not actor.type.exists(actor.group):
        return _refused(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    if context.groups.is_classic(actor):
        return _refused(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
    found = describe(actor.group, context.consumer_rules)
    if not room.take(sum(map(_size, found.members), ENTRY_BYTES)):
        return _refused(name, TOO_LARGE, room.refusal)
    return ConsumerGroupDescribeResponseDescribed(
        group_id=name,
        error_message=None,
        group_state=found.state.value,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor_name,
        members=[_member(member) for member in found.members],
    )


def _refused(name: str, error: ErrorCode, why: str) -> ConsumerGroupDescribeResponseDescribed:
    """Apache's admin shows the words of this API for a group that DescribeGroups does not find either."""
    return ConsumerGroupDescribeResponseDescribed(group_id=name, error_code=error, error_message=why)


def _size(member: DescribedMember) -> int:
    topics = (*member.assignment, *member.target_assignment)
    who = (member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host)
    texts = text_bytes((*who, member.subscribed_topic_regex, *member.subscribed_topic_names))
    return texts + sum((ENTRY_BYTES + 8 * len(topic.partitions) for topic in topics), ENTRY_BYTES)


def _member(member: DescribedMember) -> ConsumerGroupDescribeResponseMember:
    return ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=member.member_type,
    )


def _assignment(topics: Sequence[DescribedTopic]) -> ConsumerGroupDescribeResponseAssignment:
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.topic_name, partitions=list(topic.partitions)
            )
            for topic in topics
        ]
    )

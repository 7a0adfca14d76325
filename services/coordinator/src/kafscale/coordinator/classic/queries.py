"""Reads a classic group for DescribeGroups, ListGroups and OffsetDelete."""

from __future__ import annotations

from kafscale.coordinator.classic.model import CONSUMER, Group, Phase
from kafscale.wire.consumer_protocol import subscribed
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_groups import (
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
)


def state_of(group: Group) -> str:
    """The state as Kafka prints it. A group that does not exist is Dead."""
    return (group.phase if group.exists else Phase.DEAD).value


def describe(name: str, group: Group) -> DescribeGroupsResponseDescribedGroup:
    """The group as Kafka describes it: metadata and protocol only if it is Stable."""
    stable = group.phase is Phase.STABLE
    return DescribeGroupsResponseDescribedGroup(
        group_id=name,
        error_message=None,
        group_state=state_of(group),
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if stable else "",
        members=[
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata or b"" if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def offset_delete_refusal(group: Group) -> ErrorCode:
    """The error for a whole OffsetDelete. Without one, `subscribed_topics` decides for each topic."""
    if not group.exists:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.members and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that the members of the last generation consume. None if they are unknown: then every topic counts
    as subscribed (GROUP_SUBSCRIBED_TO_TOPIC), as in Kafka."""
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        if member.metadata is not None:
            named = subscribed(member.metadata)
            if named is None:
                return None
            topics.update(named)
    return frozenset(topics)

"""What ConsumerGroupDescribe 0-1 tells of a group."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.coordinator.consumer.machine import preferred_assignor, state_of
from kafscale.coordinator.consumer.model import (
    MEMBER_TYPE_CONSUMER,
    NOTHING,
    Group,
    GroupState,
    Member,
    Partitions,
    Rules,
)
from kafscale.storage.keys import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    topic_id: TopicId
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[DescribedTopic, ...]
    target_assignment: tuple[DescribedTopic, ...]
    member_type: int = MEMBER_TYPE_CONSUMER


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """With `state` DEAD the shell answers GROUP_ID_NOT_FOUND for the group."""

    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedMember, ...]


def describe(group: Group, rules: Rules) -> DescribedGroup:
    persisted = group.persisted
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    return DescribedGroup(
        group_id=persisted.group_id,
        state=state_of(persisted),
        group_epoch=persisted.epoch,
        assignment_epoch=persisted.target_epoch,
        assignor_name=preferred_assignor(persisted, rules).value,
        members=tuple(
            _member(member, persisted.target.get(member_id, NOTHING), names)
            for member_id, member in sorted(persisted.members.items())
        ),
    )


def _member(member: Member, target: Partitions, names: dict[TopicId, str]) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.names)),
        subscribed_topic_regex=member.regex or None,
        assignment=_topics(member.assigned, names),
        target_assignment=_topics(target, names),
    )


def _topics(partitions: Partitions, names: dict[TopicId, str]) -> tuple[DescribedTopic, ...]:
    """By name; without topics that are gone, as in Kafka."""
    known = ((names[topic_id], topic_id) for topic_id in partitions if topic_id in names)
    return tuple(
        DescribedTopic(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(partitions[topic_id])))
        for name, topic_id in sorted(known)
    )

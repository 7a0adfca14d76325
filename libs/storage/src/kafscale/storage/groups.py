"""The stored values of a group: its state and its committed offsets, decoded and encoded.

Pure. A group has one type, classic or consumer (KIP-848). Its state is what the next coordinator needs to continue
without the members: the last complete generation (classic), or the members and the target assignment (consumer). It
does not contain heartbeats or Joins in progress. Values from clients are stored as they were sent.

A classic group is one value. A consumer group has its own fields in the group's key, and each member has keys below it
(`consumer_groups`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from kafscale.storage.keys import TopicId
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.store.v1 import store_pb2 as pb

NOT_EMPTY = -1
NO_EXPIRY = -1


class ClassicPhase(Enum):
    EMPTY = pb.ClassicGroup.EMPTY
    PREPARING_REBALANCE = pb.ClassicGroup.PREPARING_REBALANCE
    COMPLETING_REBALANCE = pb.ClassicGroup.COMPLETING_REBALANCE
    STABLE = pb.ClassicGroup.STABLE


class ConsumerMemberState(Enum):
    STABLE = pb.ConsumerMember.STABLE
    UNREVOKED_PARTITIONS = pb.ConsumerMember.UNREVOKED_PARTITIONS
    UNRELEASED_PARTITIONS = pb.ConsumerMember.UNRELEASED_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic_id: TopicId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...] = ()  # in the member's order of preference
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A group of the JoinGroup and SyncGroup protocol. A group that only commits offsets has no members."""

    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None  # a member id
    phase: ClassicPhase = ClassicPhase.EMPTY
    members: tuple[ClassicMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignment:
    member_id: str
    partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""  # with an authorizer: who described the topics that `regex` matches
    member_epoch: int
    previous_epoch: int
    state: ConsumerMemberState
    rebalance_timeout_ms: int
    subscribed: tuple[str, ...] = ()  # topic names
    regex: str | None = None
    assignor: str | None = None
    assigned: tuple[TopicPartitions, ...] = ()
    pending_revocation: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A group of the ConsumerGroupHeartbeat protocol (KIP-848)."""

    group_epoch: int
    assignment_epoch: int  # group epoch that `target` was computed for
    target: tuple[TargetAssignment, ...] = ()
    members: tuple[ConsumerMember, ...] = ()
    metadata_hash: bytes = b""  # of the subscribed topics at `group_epoch`


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """The fields of a `ConsumerGroup` in the group's own key."""

    group_epoch: int
    assignment_epoch: int
    metadata_hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A whole group, with its members."""

    group: str
    state: ClassicGroup | ConsumerGroup
    empty_since_ms: int = NOT_EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """`{prefix}/g/{slot}/{group}`. A `ConsumerGroup` is the old format, from before members had keys."""

    group: str
    state: ClassicGroup | ConsumerGroup | ConsumerGroupMetadata
    empty_since_ms: int = NOT_EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """`{prefix}/c/{slot}/{group}/{topic_id}/{partition}`."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int
    expire_ms: int = NO_EXPIRY


def encode_group(group: GroupRecord) -> bytes:
    message = pb.GroupState(schema=SCHEMA, group=group.group, empty_since_ms=group.empty_since_ms)
    match group.state:
        case ClassicGroup() as classic:
            message.classic.CopyFrom(_classic_to_pb(classic))
        case ConsumerGroup():
            raise AssertionError("the old format is only read")
        case ConsumerGroupMetadata() as metadata:
            message.consumer_metadata.CopyFrom(
                pb.ConsumerGroupMetadata(
                    group_epoch=metadata.group_epoch,
                    assignment_epoch=metadata.assignment_epoch,
                    metadata_hash=metadata.metadata_hash,
                )
            )
        case _ as never:
            assert_never(never)
    return message.SerializeToString(deterministic=True)


def decode_group(data: bytes) -> GroupRecord:
    message = pb.GroupState()
    parse_value(message, data, "group")
    try:
        state = _state_from_pb(message)
    except ValueError as error:  # an enum value that this version does not know
        raise CorruptValue("group", str(error)) from error
    return GroupRecord(group=message.group, state=state, empty_since_ms=message.empty_since_ms)


def _state_from_pb(message: pb.GroupState) -> ClassicGroup | ConsumerGroup | ConsumerGroupMetadata:
    match message.WhichOneof("type"):
        case "classic":
            return _classic_from_pb(message.classic)
        case "consumer":
            return _consumer_from_pb(message.consumer)
        case "consumer_metadata":
            metadata = message.consumer_metadata
            return ConsumerGroupMetadata(
                group_epoch=metadata.group_epoch,
                assignment_epoch=metadata.assignment_epoch,
                metadata_hash=metadata.metadata_hash,
            )
        case _:
            raise CorruptValue("group", "it has no type")


def encode_committed(offset: CommittedOffset) -> bytes:
    return committed_to_pb(offset).SerializeToString()


def decode_committed(data: bytes) -> CommittedOffset:
    message = pb.CommittedOffset()
    parse_value(message, data, "committed offset")
    return committed_from_pb(message)


def committed_to_pb(offset: CommittedOffset) -> pb.CommittedOffset:
    return pb.CommittedOffset(
        schema=SCHEMA,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_ms=offset.commit_ms,
        expire_ms=offset.expire_ms,
    )


def committed_from_pb(message: pb.CommittedOffset) -> CommittedOffset:
    return CommittedOffset(
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_ms=message.commit_ms,
        expire_ms=message.expire_ms,
    )


def _classic_to_pb(group: ClassicGroup) -> pb.ClassicGroup:
    message = pb.ClassicGroup(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        phase=group.phase.value,
    )
    for member in group.members:
        message.members.add(
            id=member.id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=[pb.ClassicProtocol(name=p.name, metadata=p.metadata) for p in member.protocols],
            assignment=member.assignment,
        )
    return message


def _classic_from_pb(message: pb.ClassicGroup) -> ClassicGroup:
    return ClassicGroup(
        generation=message.generation,
        protocol_type=message.protocol_type if message.HasField("protocol_type") else None,
        protocol=message.protocol if message.HasField("protocol") else None,
        leader=message.leader if message.HasField("leader") else None,
        phase=ClassicPhase(message.phase),
        members=tuple(_classic_member(member) for member in message.members),
    )


def _classic_member(message: pb.ClassicMember) -> ClassicMember:
    return ClassicMember(
        id=message.id,
        instance_id=message.instance_id if message.HasField("instance_id") else None,
        client_id=message.client_id,
        client_host=message.client_host,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        protocols=tuple(ClassicProtocol(name=p.name, metadata=p.metadata) for p in message.protocols),
        assignment=message.assignment,
    )


def _consumer_from_pb(message: pb.ConsumerGroup) -> ConsumerGroup:
    return ConsumerGroup(
        group_epoch=message.group_epoch,
        assignment_epoch=message.assignment_epoch,
        target=tuple(
            TargetAssignment(member_id=each.member_id, partitions=partitions_from_pb(each.partitions))
            for each in message.target
        ),
        members=tuple(consumer_member(member.id, member, member) for member in message.members),
        metadata_hash=message.metadata_hash,
    )


def consumer_member(
    member_id: str,
    said: pb.ConsumerMemberMetadata | pb.ConsumerMember,
    has: pb.ConsumerMemberAssignment | pb.ConsumerMember,
) -> ConsumerMember:
    """A member from its two keys. In the old format one message has the fields of both."""
    return ConsumerMember(
        id=member_id,
        instance_id=said.instance_id if said.HasField("instance_id") else None,
        rack=said.rack if said.HasField("rack") else None,
        client_id=said.client_id,
        client_host=said.client_host,
        principal=said.principal if isinstance(said, pb.ConsumerMemberMetadata) else "",
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        subscribed=tuple(said.subscribed),
        regex=said.regex if said.HasField("regex") else None,
        assignor=said.assignor if said.HasField("assignor") else None,
        member_epoch=has.member_epoch,
        previous_epoch=has.previous_epoch,
        state=ConsumerMemberState(has.state),
        assigned=partitions_from_pb(has.assigned),
        pending_revocation=partitions_from_pb(has.pending_revocation),
    )


def partitions_to_pb(partitions: Iterable[TopicPartitions]) -> list[pb.TopicPartitions]:
    return [pb.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in partitions]


def partitions_from_pb(messages: Iterable[pb.TopicPartitions]) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=TopicId(each.topic_id), partitions=tuple(each.partitions))
        for each in messages
    )

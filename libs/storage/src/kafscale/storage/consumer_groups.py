"""The keys of a consumer group's members, and a group assembled from all its keys.

Pure. Each member has up to three keys below the group's key, so that a step writes only what it changed: the member's
metadata (`m`), its assignment (`a`), and its target (`t`, absent if it is empty). They are valid only below a group
key that holds `ConsumerGroupMetadata`. Below any other group key they are leftovers of an interrupted write. While
that key's assignment epoch is behind its group epoch, the targets may be of two epochs. They are then only a hint,
and a partition that two targets name belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import (
    ConsumerGroup,
    ConsumerGroupMetadata,
    ConsumerMember,
    GroupState,
    TargetAssignment,
    TopicPartitions,
    consumer_member,
    decode_group,
    partitions_from_pb,
    partitions_to_pb,
)
from kafscale.storage.keys import Keyspace, TopicId, UnknownKey
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.store.v1 import store_pb2 as pb

KEYS_PER_PAGE = 40
"""Of one read of groups. A value has at most 1.5 MiB (etcd's limit), and a response of etcd at most 64 MiB."""


class PartKind(Enum):
    METADATA = "m"
    ASSIGNMENT = "a"
    TARGET = "t"


class Part(NamedTuple):
    """The name of a key below a group's key."""

    kind: PartKind
    member_id: str


@dataclass(slots=True)
class StoredGroup:
    """The keys of one group as they were read. `record` is None if only keys of members were found."""

    record: KeyValue | None = None
    parts: dict[Part, bytes] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Of the values."""
        return (0 if self.record is None else len(self.record.value)) + sum(map(len, self.parts.values()))

    @property
    def is_of_one_value(self) -> bool:
        """A classic group, or one of the old format: keys below it are not valid."""
        assert self.record is not None, "the group has a record"
        return not isinstance(decode_group(self.record.value).state, ConsumerGroupMetadata)

    def assembled(self) -> GroupState:
        """The whole group. Raises CorruptValue and UnknownSchema."""
        assert self.record is not None, "the group has a record"
        record = decode_group(self.record.value)
        state = record.state
        if isinstance(state, ConsumerGroupMetadata):
            state = _consumer_group(state, self.parts)
        return GroupState(group=record.group, state=state, empty_since_ms=record.empty_since_ms)


def part_key(keyspace: Keyspace, group_key: bytes, part: Part) -> bytes:
    return keyspace.beneath_group(group_key, part.kind.value, part.member_id)


def stored_groups(
    keyspace: Keyspace,
    kvs: Iterable[KeyValue],
    unknown: Callable[[KeyValue, Exception], None],
    *,
    into: dict[str, StoredGroup] | None = None,
) -> dict[str, StoredGroup]:
    """The keys below the prefix of groups, by group id. `unknown` is called with each key that is not a group's.
    `into`: what was found in the keys before these."""
    found: dict[str, StoredGroup] = {} if into is None else into
    for kv in kvs:
        try:
            _, name, beneath = keyspace.parse_in_group(kv.key)
            part = None if beneath is None else Part(PartKind(beneath[0]), beneath[1])
        except (UnknownKey, ValueError) as error:
            unknown(kv, error)
            continue
        group = found.setdefault(name, StoredGroup())
        if part is None:
            group.record = kv
        else:
            group.parts[part] = kv.value
    return found


def encode_member_metadata(member: ConsumerMember) -> bytes:
    return pb.ConsumerMemberMetadata(
        schema=SCHEMA,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed=member.subscribed,
        regex=member.regex,
        assignor=member.assignor,
    ).SerializeToString(deterministic=True)


def encode_member_assignment(member: ConsumerMember) -> bytes:
    return pb.ConsumerMemberAssignment(
        schema=SCHEMA,
        member_epoch=member.member_epoch,
        previous_epoch=member.previous_epoch,
        state=member.state.value,
        assigned=partitions_to_pb(member.assigned),
        pending_revocation=partitions_to_pb(member.pending_revocation),
    ).SerializeToString(deterministic=True)


def encode_target(partitions: Iterable[TopicPartitions]) -> bytes:
    message = pb.ConsumerMemberTarget(schema=SCHEMA, partitions=partitions_to_pb(partitions))
    return message.SerializeToString(deterministic=True)


def _consumer_group(metadata: ConsumerGroupMetadata, parts: dict[Part, bytes]) -> ConsumerGroup:
    """Raises CorruptValue if a key of a member is missing: all keys of a member are written together."""
    ids = {kind: [part.member_id for part in parts if part.kind is kind] for kind in PartKind}
    known = set(ids[PartKind.METADATA])
    if known != set(ids[PartKind.ASSIGNMENT]) or not known.issuperset(ids[PartKind.TARGET]):
        raise CorruptValue("group", "keys of a member are missing")
    targets = [
        TargetAssignment(member_id=member_id, partitions=_target(parts[Part(PartKind.TARGET, member_id)]))
        for member_id in ids[PartKind.TARGET]
    ]
    is_behind = metadata.assignment_epoch < metadata.group_epoch
    return ConsumerGroup(
        group_epoch=metadata.group_epoch,
        assignment_epoch=metadata.assignment_epoch,
        metadata_hash=metadata.metadata_hash,
        target=_disjoint(targets) if is_behind else tuple(targets),
        members=tuple(
            _member(
                member_id,
                parts[Part(PartKind.METADATA, member_id)],
                parts[Part(PartKind.ASSIGNMENT, member_id)],
            )
            for member_id in ids[PartKind.METADATA]
        ),
    )


def _disjoint(targets: Iterable[TargetAssignment]) -> tuple[TargetAssignment, ...]:
    """Each partition in the first target that names it."""
    taken: dict[TopicId, set[int]] = {}
    found = []
    for target in targets:
        mine = []
        for topic in target.partitions:
            others = taken.setdefault(topic.topic_id, set())
            free = tuple(number for number in topic.partitions if number not in others)
            others.update(free)
            if free:
                mine.append(replace(topic, partitions=free))
        if mine:
            found.append(replace(target, partitions=tuple(mine)))
    return tuple(found)


def _target(data: bytes) -> tuple[TopicPartitions, ...]:
    message = pb.ConsumerMemberTarget()
    parse_value(message, data, "target assignment")
    return partitions_from_pb(message.partitions)


def _member(member_id: str, said: bytes, has: bytes) -> ConsumerMember:
    metadata, assignment = pb.ConsumerMemberMetadata(), pb.ConsumerMemberAssignment()
    parse_value(metadata, said, "member")
    parse_value(assignment, has, "assignment")
    return consumer_member(member_id, metadata, assignment)

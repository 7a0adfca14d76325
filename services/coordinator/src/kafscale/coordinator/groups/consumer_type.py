"""The consumer group type (KIP-848): its machine as the actor drives it, and its keys in etcd. Pure.

A group has one key, and up to three keys for each member. A step writes only the keys that it changed. A change too
large for one transaction is safe in parts, because it raises the group epoch above the target's epoch. Until the last
part is written, the group's key says that the target has an older epoch, and a coordinator that reads the group then
computes the target again. Only the member that sent the heartbeat may get partitions in this step, and the partitions
of that member are written last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import assert_never

from kafscale.coordinator.consumer.machine import durable, next_deadline, restore, step
from kafscale.coordinator.consumer.model import (
    NOTHING,
    Assignor,
    Event,
    Group,
    Member,
    MemberId,
    MemberState,
    Partitions,
    PersistedGroup,
    Reply,
    Rules,
    Sees,
    Tick,
    Topics,
)
from kafscale.coordinator.groups.group_txns import GroupChange
from kafscale.storage import groups as records
from kafscale.storage.consumer_groups import (
    Part,
    PartKind,
    encode_member_assignment,
    encode_member_metadata,
    encode_target,
)
from kafscale.storage.groups import TopicPartitions, encode_group

_STATES = {state: records.ConsumerMemberState[state.name] for state in MemberState}
_STATES_BACK = {there: here for here, there in _STATES.items()}


class ConsumerGroupType:
    """`GroupType[Group, Event, PersistedGroup]`. `rules`: of a group; `topics` is the shell's one mapping of what
    exists; `sees`: what the members' expressions may match.
    """

    next_deadline = staticmethod(next_deadline)
    durable = staticmethod(durable)

    def __init__(self, rules: Callable[[str], Rules], topics: Callable[[], Topics], sees: Sees) -> None:
        self._rules = rules
        self._topics = topics
        self._sees = sees

    def fresh(self, name: str, now_ms: int) -> Group:
        return self.restored(PersistedGroup(group_id=name), now_ms)

    def restored(self, persisted: PersistedGroup, now_ms: int) -> Group:
        rules = self._rules(persisted.group_id)
        return restore(persisted, now_ms, self._topics(), rules, self._sees)

    def step(self, group: Group, event: Event, now_ms: int) -> tuple[Group, Sequence[Reply]]:
        done = step(group, event, now_ms, self._rules(group.persisted.group_id), self._sees)
        return done.group, done.replies

    def must_save(self, before: Group, after: Group) -> bool:
        return durable(before) != durable(after)

    def parts_changed(self, stored: PersistedGroup | None, group: Group) -> int:
        return sum(1 for _ in _changed(stored, durable(group)))

    def change(
        self, name: str, stored: PersistedGroup | None, group: Group, empty_since_ms: int
    ) -> GroupChange:
        return change_of(name, stored, durable(group), empty_since_ms)

    def tick(self) -> Event:
        return Tick()

    def abandon(self, token: int) -> Event | None:
        return None  # this machine parks no request

    def exists(self, group: Group) -> bool:
        return group.persisted.epoch != 0

    def generation(self, group: Group) -> int:
        return group.persisted.epoch

    def is_empty(self, group: Group) -> bool:
        return not group.persisted.members


def change_of(
    name: str, stored: PersistedGroup | None, persisted: PersistedGroup, empty_since_ms: int
) -> GroupChange:
    """The change from `stored`, which etcd has, to `persisted`. None: etcd has no record, or one of the old format."""
    if persisted.epoch == 0:
        return GroupChange(record=None)

    def record(assignment_epoch: int) -> bytes:
        state = records.ConsumerGroupMetadata(
            group_epoch=persisted.epoch,
            assignment_epoch=assignment_epoch,
            metadata_hash=persisted.metadata_hash,
        )
        return encode_group(records.GroupRecord(group=name, state=state, empty_since_ms=empty_since_ms))

    parts = {part: _value(part, persisted) for part in _changed(stored, persisted)}
    if stored is None:
        return GroupChange(record=record(persisted.target_epoch), early=parts)
    if persisted.epoch == stored.target_epoch:
        return GroupChange(record=record(persisted.target_epoch), late=parts)
    late = {part: value for part, value in parts.items() if value is not None and _is_late(part, stored)}
    return GroupChange(
        record=record(persisted.target_epoch),
        between=record(stored.target_epoch),
        early={part: value for part, value in parts.items() if part not in late},
        late=late,
    )


def _is_late(part: Part, stored: PersistedGroup) -> bool:
    """Of a new member, all its keys; of another, its metadata and its assignment."""
    return part.kind is not PartKind.TARGET or MemberId(part.member_id) not in stored.members


def _changed(stored: PersistedGroup | None, persisted: PersistedGroup) -> Iterator[Part]:
    """The changed keys, by member. Unchanged members are the same object, which makes this cheap."""
    before: Mapping[MemberId, Member] = {} if stored is None else stored.members
    targets: Mapping[MemberId, Partitions] = {} if stored is None else stored.target
    for member_id, member in persisted.members.items():
        old = before.get(member_id)
        if old is not member:
            if old is None or _said(old) != _said(member):
                yield Part(PartKind.METADATA, member_id)
            if old is None or _has(old) != _has(member):
                yield Part(PartKind.ASSIGNMENT, member_id)
        target, old_target = persisted.target.get(member_id, NOTHING), targets.get(member_id, NOTHING)
        if target is not old_target and target != old_target:
            yield Part(PartKind.TARGET, member_id)
    for member_id in before:
        if member_id not in persisted.members:
            yield Part(PartKind.METADATA, member_id)
            yield Part(PartKind.ASSIGNMENT, member_id)
            if targets.get(member_id):
                yield Part(PartKind.TARGET, member_id)


def _said(member: Member) -> tuple[object, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.principal,
        member.rebalance_timeout_ms,
        member.names,
        member.regex,
        member.assignor,
    )


def _has(member: Member) -> tuple[object, ...]:
    return (member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking)


def _value(part: Part, persisted: PersistedGroup) -> bytes | None:
    member_id = MemberId(part.member_id)
    member = persisted.members.get(member_id)
    if member is None:
        return None
    match part.kind:
        case PartKind.METADATA:
            return encode_member_metadata(_member_record(member))
        case PartKind.ASSIGNMENT:
            return encode_member_assignment(_member_record(member))
        case PartKind.TARGET:
            target = persisted.target.get(member_id, NOTHING)
            return encode_target(_listed(target)) if target else None
        case _:
            assert_never(part.kind)


def _member_record(member: Member) -> records.ConsumerMember:
    return records.ConsumerMember(
        id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        member_epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=_STATES[member.state],
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed=tuple(sorted(member.names)),
        regex=member.regex,
        assignor=None if member.assignor is None else member.assignor.value,
        assigned=_listed(member.assigned),
        pending_revocation=_listed(member.revoking),
    )


def persisted_of(name: str, record: records.ConsumerGroup) -> PersistedGroup:
    return PersistedGroup(
        group_id=name,
        epoch=record.group_epoch,
        target_epoch=record.assignment_epoch,
        metadata_hash=record.metadata_hash,
        target={MemberId(each.member_id): _by_topic(each.partitions) for each in record.target},
        members={MemberId(member.id): _member(member) for member in record.members},
    )


def _member(record: records.ConsumerMember) -> Member:
    return Member(
        member_id=MemberId(record.id),
        epoch=record.member_epoch,
        previous_epoch=record.previous_epoch,
        state=_STATES_BACK[record.state],
        assigned=_by_topic(record.assigned),
        revoking=_by_topic(record.pending_revocation),
        instance_id=record.instance_id,
        rack_id=record.rack,
        client_id=record.client_id,
        client_host=record.client_host,
        principal=record.principal,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        names=frozenset(record.subscribed),
        regex=record.regex,
        assignor=None if record.assignor is None else Assignor(record.assignor),
    )


def _listed(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items())
    )


def _by_topic(listed: Sequence[TopicPartitions]) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in listed}

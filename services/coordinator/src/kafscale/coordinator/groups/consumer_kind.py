"""The machine of KIP-848 as the actor drives it, and its record in etcd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafscale.coordinator.consumer.machine import durable, next_deadline, restore, step
from kafscale.coordinator.consumer.model import (
    Assignor,
    Event,
    Group,
    Member,
    MemberId,
    MemberState,
    Partitions,
    Reply,
    Rules,
    Saved,
    Tick,
    Topics,
)
from kafscale.storage import groups as stored
from kafscale.storage.groups import TopicPartitions, encode_group

_STATES = {state: stored.ConsumerMemberState[state.name] for state in MemberState}
_STATES_BACK = {there: here for here, there in _STATES.items()}


class ConsumerKind:
    """`Kind[Group, Event]`. `topics` is the shell's one mapping of what exists."""

    def __init__(self, rules: Rules, topics: Callable[[], Topics]) -> None:
        self._rules = rules
        self._topics = topics

    def fresh(self, name: str, now_ms: int) -> Group:
        return restore(Saved(group_id=name), now_ms, self._topics(), self._rules)

    def restore(self, name: str, record: stored.ConsumerGroup, now_ms: int) -> Group:
        return restore(_from_record(name, record), now_ms, self._topics(), self._rules)

    def step(self, group: Group, event: Event, now_ms: int) -> tuple[Group, Sequence[Reply]]:
        done = step(group, event, now_ms, self._rules)
        return done.group, done.replies

    def next_deadline(self, group: Group) -> int | None:
        return next_deadline(group)

    def must_save(self, before: Group, after: Group) -> bool:
        return durable(before) != durable(after)

    def is_kept(self, group: Group) -> bool:
        return durable(group).epoch != 0

    def reborn(self, name: str, group: Group, now_ms: int) -> Group:
        return restore(durable(group), now_ms, self._topics(), self._rules)

    def encode(self, name: str, group: Group, empty_since_ms: int) -> bytes:
        saved = durable(group)
        return encode_group(
            stored.GroupState(group=name, state=_to_record(saved), empty_since_ms=empty_since_ms)
        )

    def tick(self) -> Event:
        return Tick()

    def abandon(self, token: int) -> Event | None:
        return None  # nothing is parked

    def exists(self, group: Group) -> bool:
        return self.is_kept(group)

    def generation(self, group: Group) -> int:
        return group.saved.epoch

    def is_empty(self, group: Group) -> bool:
        return not group.saved.members


def _to_record(saved: Saved) -> stored.ConsumerGroup:
    return stored.ConsumerGroup(
        group_epoch=saved.epoch,
        assignment_epoch=saved.target_epoch,
        metadata_hash=saved.metadata_hash,
        target=tuple(
            stored.TargetAssignment(member_id=member_id, partitions=_listed(partitions))
            for member_id, partitions in saved.target.items()
        ),
        members=tuple(_member_record(member) for member in saved.members.values()),
    )


def _member_record(member: Member) -> stored.ConsumerMember:
    return stored.ConsumerMember(
        id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
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


def _from_record(name: str, record: stored.ConsumerGroup) -> Saved:
    return Saved(
        group_id=name,
        epoch=record.group_epoch,
        target_epoch=record.assignment_epoch,
        metadata_hash=record.metadata_hash,
        target={MemberId(each.member_id): _by_topic(each.partitions) for each in record.target},
        members={MemberId(member.id): _member(member) for member in record.members},
    )


def _member(record: stored.ConsumerMember) -> Member:
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

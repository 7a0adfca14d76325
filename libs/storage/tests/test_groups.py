"""What a group's next coordinator reads is what the last one wrote, in every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.consumer_groups import (
    Part,
    PartKind,
    encode_member_assignment,
    encode_member_metadata,
    encode_target,
    part_key,
    stored_groups,
)
from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import (
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    ConsumerGroupMetadata,
    ConsumerMember,
    ConsumerMemberState,
    GroupRecord,
    GroupState,
    TargetAssignment,
    TopicPartitions,
    decode_committed,
    decode_group,
    encode_committed,
    encode_group,
)
from kafscale.storage.keys import Keyspace, SlotId, TopicId
from kafscale.storage.schema import SCHEMA, CorruptValue, UnknownSchema
from kafscale.store.v1 import store_pb2 as pb
from kafscale.testkit.old_groups import encode_old_group

TOPIC = TopicId(b"t" * 16)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a dataclass with every field drawn: a field that a codec forgets is found."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: _drawn(hints[field.name]) for field in dataclasses.fields(kind)})


def _drawn(hint: Any) -> st.SearchStrategy[Any]:
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of([st.none() if option is types.NoneType else _drawn(option) for option in options])
    if typing.get_origin(hint) is tuple:
        return st.lists(_drawn(options[0]), max_size=3).map(tuple)
    if hint is TopicId:
        return st.binary(min_size=16, max_size=16).map(TopicId)
    if dataclasses.is_dataclass(hint):
        return values_of(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return {str: st.text(max_size=9), bytes: st.binary(max_size=9), int: st.integers(-1, (1 << 31) - 1)}[hint]


def without_principals(group: GroupRecord) -> GroupRecord:
    """The old format of a consumer group is from a time without authorizers."""
    state = group.state
    if not isinstance(state, ConsumerGroup):
        return group
    members = tuple(replace(member, principal="") for member in state.members)
    return replace(group, state=replace(state, members=members))


@given(values_of(GroupRecord).map(without_principals))
def test_a_group_comes_back_as_it_went_in(group: GroupRecord) -> None:
    assert decode_group(encode_old_group(group)) == group


KEYS = Keyspace()


def entries(group: GroupState) -> list[KeyValue]:
    """The keys of a consumer group as a coordinator writes them."""
    state = group.state
    assert isinstance(state, ConsumerGroup)
    metadata = ConsumerGroupMetadata(
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        metadata_hash=state.metadata_hash,
    )
    record = GroupRecord(group=group.group, state=metadata, empty_since_ms=group.empty_since_ms)
    parts = {Part(PartKind.METADATA, each.id): encode_member_metadata(each) for each in state.members}
    parts |= {Part(PartKind.ASSIGNMENT, each.id): encode_member_assignment(each) for each in state.members}
    parts |= {Part(PartKind.TARGET, each.member_id): encode_target(each.partitions) for each in state.target}
    key = KEYS.group(SlotId(7), group.group)
    beneath = [KeyValue(part_key(KEYS, key, part), value, 1, 1, 1, 0) for part, value in parts.items()]
    return [*beneath, KeyValue(key, encode_group(record), 1, 1, 1, 0)]


def with_targets(group: ConsumerGroup, epochs: tuple[int, int]) -> ConsumerGroup:
    """With different members, a target for each, and no target that could contradict another."""
    members = tuple({member.id: member for member in group.members}.values())
    return replace(
        group,
        group_epoch=epochs[0],
        assignment_epoch=epochs[1],
        members=members,
        target=tuple(TargetAssignment(member_id=each.id, partitions=each.assigned) for each in members),
    )


def whole(name: str, kvs: list[KeyValue]) -> GroupState:
    return stored_groups(KEYS, kvs, _no_group)[name].assembled()


def _no_group(kv: KeyValue, error: Exception) -> None:
    raise error


@given(st.text(min_size=1, max_size=9), values_of(ConsumerGroup))
def test_a_consumer_group_comes_back_from_its_keys(name: str, consumer: ConsumerGroup) -> None:
    group = GroupState(group=name, state=with_targets(consumer, (4, 4)))
    assert whole(name, entries(group)) == group


def member(name: str, *numbers: int) -> ConsumerMember:
    return ConsumerMember(
        id=name,
        member_epoch=1,
        previous_epoch=0,
        state=ConsumerMemberState.STABLE,
        rebalance_timeout_ms=1,
        assigned=(TopicPartitions(topic_id=TOPIC, partitions=numbers),),
    )


def test_targets_of_two_epochs_share_no_partition() -> None:
    mixed = ConsumerGroup(
        group_epoch=5, assignment_epoch=4, members=(member("a", 0, 1), member("b", 1, 2), member("c", 2))
    )
    state = whole("g", entries(GroupState(group="g", state=with_targets(mixed, (5, 4))))).state
    assert isinstance(state, ConsumerGroup)
    assert [(each.member_id, each.partitions[0].partitions) for each in state.target] == [
        ("a", (0, 1)),
        ("b", (2,)),
    ]
    assert state.members == mixed.members


@pytest.mark.parametrize("kind", [PartKind.METADATA, PartKind.ASSIGNMENT])
def test_half_a_member_is_damage(kind: PartKind) -> None:
    group = GroupState(
        group="g", state=ConsumerGroup(group_epoch=1, assignment_epoch=1, members=(member("a", 0),))
    )
    lost = part_key(KEYS, KEYS.group(SlotId(7), "g"), Part(kind, "a"))
    with pytest.raises(CorruptValue, match="missing"):
        whole("g", [kv for kv in entries(group) if kv.key != lost])


@given(values_of(CommittedOffset))
def test_a_committed_offset_comes_back_as_it_went_in(offset: CommittedOffset) -> None:
    assert decode_committed(encode_committed(offset)) == offset


def test_an_instance_id_without_text_is_not_the_lack_of_one() -> None:
    classic = ClassicGroup(protocol="", leader=None)
    found = decode_group(encode_group(GroupRecord(group="g", state=classic))).state
    assert isinstance(found, ClassicGroup)
    assert (found.protocol, found.leader, found.protocol_type) == ("", None, None)


def test_equal_states_have_equal_bytes() -> None:
    state = GroupRecord(group="g", state=ConsumerGroupMetadata(group_epoch=3, assignment_epoch=2))
    assert encode_group(state) == encode_group(decode_group(encode_group(state)))


def test_a_usual_commit_takes_few_bytes() -> None:
    """Thousands of them are written each second."""
    assert len(encode_committed(CommittedOffset(offset=1 << 30, commit_ms=1 << 41))) <= 24


def test_what_is_not_a_group_is_refused() -> None:
    with pytest.raises(CorruptValue):
        decode_group(b"\xff")
    with pytest.raises(CorruptValue):
        decode_group(pb.GroupState(schema=SCHEMA, group="g").SerializeToString())
    with pytest.raises(UnknownSchema):
        decode_group(pb.GroupState(schema=SCHEMA + 1).SerializeToString())
    with pytest.raises(UnknownSchema):
        decode_committed(pb.CommittedOffset(schema=SCHEMA + 1).SerializeToString())

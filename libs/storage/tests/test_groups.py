"""What a group's next coordinator reads is what the last one wrote, in every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.groups import (
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    GroupState,
    decode_committed,
    decode_group,
    encode_committed,
    encode_group,
)
from kafscale.storage.heads import CorruptValue
from kafscale.storage.keys import TopicId
from kafscale.storage.schema import SCHEMA, UnknownSchema
from kafscale.store.v1 import store_pb2 as pb


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


@given(values_of(GroupState))
def test_a_group_comes_back_as_it_went_in(group: GroupState) -> None:
    assert decode_group(encode_group(group)) == group


@given(values_of(CommittedOffset))
def test_a_committed_offset_comes_back_as_it_went_in(offset: CommittedOffset) -> None:
    assert decode_committed(encode_committed(offset)) == offset


def test_an_instance_id_without_text_is_not_the_lack_of_one() -> None:
    classic = ClassicGroup(protocol="", leader=None)
    found = decode_group(encode_group(GroupState(group="g", state=classic))).state
    assert isinstance(found, ClassicGroup)
    assert (found.protocol, found.leader, found.protocol_type) == ("", None, None)


def test_equal_states_have_equal_bytes() -> None:
    state = GroupState(group="g", state=ConsumerGroup(group_epoch=3, assignment_epoch=2))
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

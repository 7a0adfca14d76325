"""The stored values of transactions come back as they went in, and a damaged one is never taken for another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import TopicId
from kafscale.storage.schema import SCHEMA, CorruptValue, UnknownSchema, UnreadableValue
from kafscale.storage.transactions import (
    ClosingTransaction,
    Outcome,
    Participants,
    PendingOffset,
    PendingOffsets,
    TransactionState,
    decode_pending,
    decode_transaction,
    encode_pending,
    encode_transaction,
)
from kafscale.store.v1 import store_pb2 as pb

TOPIC = TopicId(b"t" * 16)
epochs, times, ids = st.integers(-1, 32_767), st.integers(0, 1 << 60), st.integers(-1, (1 << 63) - 1)
partition_keys = st.tuples(st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, (1 << 31) - 1))
participants = st.builds(
    Participants, st.frozensets(partition_keys, max_size=4), st.frozensets(st.text(max_size=9), max_size=3)
)
closings = st.builds(
    ClosingTransaction,
    number=times,
    producer_id=ids,
    marker_epoch=epochs,
    bumped=st.booleans(),
    commit=st.booleans(),
    coordinator_epoch=st.integers(0, (1 << 31) - 1),
    awaited=participants,
)
transactions = st.builds(
    TransactionState,
    id=st.text(max_size=9),
    producer_id=ids,
    epoch=epochs,
    last_epoch=epochs,
    previous_id=ids,
    timeout_ms=st.integers(1, (1 << 31) - 1),
    number=times,
    started_ms=times,
    changed_ms=times,
    last=st.sampled_from(Outcome),
    last_bumped=st.booleans(),
    current=st.none() | participants,
    closing=st.none() | closings,
)
committed = st.builds(
    CommittedOffset,
    offset=times,
    leader_epoch=st.integers(-1, 9),
    metadata=st.text(max_size=9),
    commit_ms=times,
    expire_ms=st.integers(-1, 1 << 60),
)
pendings = st.builds(
    PendingOffsets,
    group=st.text(max_size=9),
    producer_id=ids,
    epoch=epochs,
    number=times,
    offsets=st.lists(
        st.builds(
            lambda where, offset, since: PendingOffset(
                topic_id=where[0], partition=where[1], offset=offset, since=since
            ),
            partition_keys,
            committed,
            times,
        ),
        max_size=4,
        unique_by=lambda each: each.where,
    ).map(tuple),
)
EMPTY = TransactionState(id="x", producer_id=7, timeout_ms=1, changed_ms=1)
PENDING = PendingOffset(topic_id=TOPIC, partition=0, offset=CommittedOffset(offset=1, commit_ms=1))


@given(participants | st.sampled_from((150, 16_000)).map(lambda size: Participants.of("g" * size)))
def test_participants_take_no_more_bytes_than_they_say(some: Participants) -> None:
    without = TransactionState(id="", producer_id=1, timeout_ms=1, changed_ms=0, current=Participants())
    taken = len(encode_transaction(replace(without, current=some))) - len(encode_transaction(without))
    around = 3  # the length of all of them
    assert taken <= some.bytes_max + around


@given(transactions)
def test_the_state_of_an_id_comes_back_as_it_went_in(state: TransactionState) -> None:
    assert decode_transaction(encode_transaction(state)) == state


@given(pendings)
def test_pending_offsets_come_back_as_they_went_in(pending: PendingOffsets) -> None:
    assert decode_pending(encode_pending(pending)) == pending


def test_a_transaction_without_participants_is_not_the_lack_of_one() -> None:
    found = decode_transaction(encode_transaction(replace(EMPTY, current=Participants())))
    assert found.current == Participants()
    assert decode_transaction(encode_transaction(EMPTY)).current is None


def test_equal_states_have_equal_bytes() -> None:
    some = [(TopicId(bytes([number]) * 16), number % 3) for number in range(50)]
    one, other = (
        replace(EMPTY, current=Participants.of(*order, "a", "b")) for order in (some, reversed(some))
    )
    assert encode_transaction(one) == encode_transaction(other)


@pytest.mark.parametrize("decode", [decode_transaction, decode_pending])
def test_bytes_that_are_no_value_are_unreadable(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(CorruptValue):
        decode(b"\xff")
    with pytest.raises(UnreadableValue):  # no schema
        decode(b"")


def test_a_value_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(UnknownSchema):
        decode_transaction(pb.TransactionState(schema=SCHEMA + 1).SerializeToString())
    with pytest.raises(UnknownSchema):
        decode_pending(pb.PendingOffsets(schema=SCHEMA + 1).SerializeToString())


def test_values_that_parse_and_make_no_sense_are_corrupt() -> None:
    message = pb.TransactionState(schema=SCHEMA)
    message.current.partitions.add(topic_id=b"short", partitions=[1])
    with pytest.raises(CorruptValue, match="topic id"):
        decode_transaction(message.SerializeToString())
    with pytest.raises(CorruptValue):  # an outcome that this version does not know: field 11, a varint
        decode_transaction(encode_transaction(EMPTY) + bytes([11 << 3, 9]))
    twice = PendingOffsets(group="g", producer_id=1, epoch=0, number=1, offsets=(PENDING, PENDING))
    with pytest.raises(CorruptValue, match="twice"):
        decode_pending(encode_pending(twice))

"""Producer snapshots read back as written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import OpenTransaction
from kafscale.log.snapshots import (
    ProducerBatch,
    ProducerEntry,
    ProducerSnapshot,
    decode_snapshot,
    encode_producer,
    encode_snapshot,
)
from kafscale.storage.schema import CorruptValue, UnknownSchema
from kafscale.store.v1 import store_pb2 as pb

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
batches = st.builds(ProducerBatch, first_seq=i32, last_seq=i32, base=i64, ts=i64)
entries = st.builds(
    ProducerEntry,
    producer_id=i64,
    epoch=i32,
    last_ms=i64,
    batches=st.lists(batches, max_size=5).map(tuple),
    coordinator_epoch=st.integers(-1, (1 << 31) - 1),
)
begun = st.builds(OpenTransaction, producer_id=i64, epoch=i32, number=i64, first=i64)
snapshots = st.builds(ProducerSnapshot, offset=i64, producers=st.lists(entries, max_size=5).map(tuple))


@given(snapshots, st.lists(begun, max_size=3).map(tuple), st.booleans())
def test_a_snapshot_reads_back_as_written(
    snapshot: ProducerSnapshot, begun: tuple[OpenTransaction, ...], transactional: bool
) -> None:
    transactional |= bool(begun)
    whole = replace(snapshot, open=begun, transactional=transactional)
    parts = map(encode_producer, snapshot.producers)
    data = encode_snapshot(snapshot.offset, parts, begun, transactional=transactional)
    assert decode_snapshot(data) == whole
    assert pb.ProducerSnapshot.FromString(data).schema == (2 if transactional else 1)


def test_a_snapshot_without_transactions_has_the_bytes_that_it_always_had() -> None:
    batch = ProducerBatch(first_seq=1, last_seq=2, base=3, ts=4)
    entry = ProducerEntry(producer_id=7, epoch=5, last_ms=6, batches=(batch,))
    written = encode_snapshot(9, [encode_producer(entry)])
    assert written.hex() == "080110091a1008071005180622080801100218032004"


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(UnknownSchema):
        decode_snapshot(b"")
    with pytest.raises(CorruptValue, match="producer snapshot"):
        decode_snapshot(b"\xff\xff\xff")

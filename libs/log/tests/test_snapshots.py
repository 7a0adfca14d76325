"""Producer snapshots read back as written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.snapshots import (
    ProducerBatch,
    ProducerEntry,
    ProducerSnapshot,
    decode_snapshot,
    encode_producer,
    encode_snapshot,
)
from kafscale.storage.schema import CorruptValue, UnknownSchema

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
batches = st.builds(ProducerBatch, first_seq=i32, last_seq=i32, base=i64, ts=i64)
entries = st.builds(
    ProducerEntry,
    producer_id=i64,
    epoch=i32,
    last_ms=i64,
    batches=st.lists(batches, max_size=5).map(tuple),
)


@given(st.builds(ProducerSnapshot, offset=i64, producers=st.lists(entries, max_size=5).map(tuple)))
def test_a_snapshot_reads_back_as_written(snapshot: ProducerSnapshot) -> None:
    data = encode_snapshot(snapshot.offset, map(encode_producer, snapshot.producers))
    assert decode_snapshot(data) == snapshot


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(UnknownSchema):
        decode_snapshot(b"")
    with pytest.raises(CorruptValue, match="producer snapshot"):
        decode_snapshot(b"\xff\xff\xff")

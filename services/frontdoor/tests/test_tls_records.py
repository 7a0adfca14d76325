"""How answers become records: the same bytes, few records, and no copy of large ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.listeners.tls_stream import RECORD_BYTES, in_records

SIZES = st.one_of(st.integers(0, 60), st.integers(RECORD_BYTES - 2, RECORD_BYTES + 2), st.integers(0, 50_000))


@given(st.lists(SIZES, max_size=30))
def test_the_bytes_stay_the_same_and_small_neighbours_fill_records(sizes: list[int]) -> None:
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    records = in_records(buffers)
    assert b"".join(records) == b"".join(buffers)
    assert all(len(record) < 2 * RECORD_BYTES or record in buffers for record in records)
    for one, other in zip(records, records[1:], strict=False):
        assert max(len(one), len(other)) >= RECORD_BYTES, "two small records in a row"


def test_large_buffers_are_not_copied() -> None:
    large = memoryview(bytearray(RECORD_BYTES))
    small = b"head"
    assert in_records([small, large, small])[1] is large

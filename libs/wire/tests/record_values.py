"""Records for tests, and batches around hand-made bytes."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from kafscale.wire.batches import pack_batch
from kafscale.wire.records import (
    Record,
    build_batch,
    read_batch_header,
)

NUMBERS = st.integers(0, 1 << 41)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=NUMBERS,
        key=st.none() | st.binary(max_size=300),
        value=st.none() | st.binary(max_size=300),
        headers=HEADERS.map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def batch_of(body: bytes, count: int = 1) -> bytes:
    """An uncompressed batch around hand-made record bytes."""
    header = msgspec.structs.replace(
        read_batch_header(build_batch([Record(timestamp=0)])),
        records_count=count,
        last_offset_delta=count - 1,
    )
    return bytes(pack_batch(header, body))


def record_of(data: bytes) -> bytes:
    return bytes((2 * len(data),)) + data


SOUND = b"\x00\x00\x00\x02k\x02v\x00"

"""Whatever a producer sent under a right checksum, reading ends in rows within bounds or in CorruptSegment.

A varint of 64 bits must not lead outside of the segment, and a kilobyte must not become a gigabyte in memory.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.columns import FIELDS, Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, check_offsets, scan_heads
from kafscale.lake.rows import Bodies, _follow, _step, skipped
from kafscale.lake.sources import count_records
from kafscale.wire.batches import BatchHeader, crc32c, pack_batch
from kafscale.wire.compression import compress
from kafscale.wire.records import Codec, Record, build_batch, read_batch_header
from numpy.typing import NDArray

from spark.lake.tests.examples import quick

HUGE = (1 << 63) - 1
MIB = 1 << 20


def varint(value: int) -> bytes:
    """Zig-zag, of up to 64 bits."""
    number, out = (value << 1 ^ value >> 63) & (1 << 64) - 1, bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def batch_of(body: bytes, records: int, codec: Codec = Codec.NONE, last: int | None = None) -> bytes:
    """A batch with any body and a checksum that fits."""
    header = read_batch_header(build_batch([Record(timestamp=1)]))
    fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__} | {
        "records_count": records,
        "last_offset_delta": records - 1 if last is None else last,
        "attributes": int(codec),
    }
    return bytes(pack_batch(BatchHeader(**fields), compress(codec, body)))


def read(segment: bytes, columns: Sequence[str] = tuple(FIELDS)) -> int:
    """Every way there is to read it; how many rows and bytes of content came out together."""
    heads = scan_heads(segment, 0, len(segment))
    check_offsets(heads, 0, 1 << 40)
    count_records(segment, heads, 0, 1 << 40)
    total = 0
    for batch in read_columns(segment, heads, Wanted(columns=tuple(columns))):
        batch.validate(full=True)
        total += batch.num_rows + sum(
            len(value or b"")
            for name in ("key", "value")
            if name in columns
            for value in batch[name].to_pylist()
        )
    return total


def record(*, key: int = 1, value: int = 1, headers: bytes = b"\x00", length: int | None = None) -> bytes:
    """One record with the given lengths, whatever its bytes are."""
    body = b"\x00" + varint(0) + varint(0) + varint(key) + b"k" + varint(value) + b"v" + headers
    return varint(len(body) if length is None else length) + body


BENT = {
    "key": record(key=HUGE),
    "key that comes around": record(key=HUGE - 3, headers=varint(HUGE)),
    "value": record(value=HUGE),
    "value of one byte too many": record(value=3),
    "negative key": record(key=-2),
    "record": record(length=HUGE),
    "negative record": record(length=-5),
    "headers": record(headers=varint(HUGE)),
    "negative headers": record(headers=varint(-1)),
    "header name": record(headers=varint(1) + varint(HUGE) + b"n" + varint(1) + b"v"),
    "header without a name": record(headers=varint(1) + varint(-1) + varint(1) + b"v"),
    "header value": record(headers=varint(1) + varint(1) + b"n" + varint(HUGE) + b"v"),
    "endless varint": b"\xff" * 40,
}


@pytest.mark.parametrize("columns", [tuple(FIELDS), ("value",), ("headers",), ("offset",)])
@pytest.mark.parametrize("beside", [0, 200])  # alone it is followed by itself, among many in step
@pytest.mark.parametrize("bent", BENT)
def test_a_length_of_any_size_is_refused(bent: str, beside: int, columns: tuple[str, ...]) -> None:
    """Header fields are only looked at by who wants headers."""
    out = bytearray()
    for number in range(beside + 1):
        batch = bytearray(batch_of(BENT[bent] if number == beside // 2 else record(), 1))
        struct.pack_into(">q", batch, 0, number)
        out += batch
    if bent.startswith("header ") and "headers" not in columns:
        assert read(bytes(out), columns) >= beside
        return
    with pytest.raises(CorruptSegment):
        read(bytes(out), columns)


def test_lengths_that_add_up_by_coming_around_are_refused() -> None:
    """Two records whose lengths together end where the batch ends, if 64 bits are all that is looked at."""
    one, size = record(length=HUGE), len(record(length=HUGE))
    out = bytearray()
    for number in range(200):
        body = one + varint(-HUGE + 1 + size) + b"\x00" * 12 if number == 100 else record() + record()
        batch = bytearray(batch_of(body, 2))
        struct.pack_into(">q", batch, 0, 2 * number)
        out += batch
    with pytest.raises(CorruptSegment):
        read(bytes(out))


def test_no_field_is_skipped_to_where_64_bits_come_around() -> None:
    at, ends = np.array([100, 200]), np.array([150, 250])
    assert skipped(np.array([50, -1]), at, ends).tolist() == [150, 200]
    for length in (51, HUGE, -2):
        with pytest.raises(CorruptSegment):
            skipped(np.array([0, length]), at, ends)


@quick(400)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from(list(Codec)),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 7)), min_size=1, max_size=6),
)
def test_flipped_bits_under_right_checksums_end_in_rows_or_refusal(
    counts: list[int], codec: Codec, flips: list[tuple[int, int]]
) -> None:
    out = bytearray()
    for count in counts:
        some = [Record(timestamp=n, key=b"key", value=b"v" * n, headers=(("h", b"x"),)) for n in range(count)]
        out += build_batch(some, codec=codec)
    for at, bit in flips:
        out[at % len(out)] ^= 1 << bit
    position = 0
    while len(out) - position >= 61:
        size = 12 + struct.unpack_from(">i", out, position + 8)[0]
        if not 61 <= size <= len(out) - position:
            break
        struct.pack_into(">I", out, position + 17, crc32c(bytes(out[position + 21 : position + size])))
        struct.pack_into(">q", out, position, position)
        position += size
    try:
        assert read(bytes(out)) <= 64 * MIB
    except CorruptSegment:
        return


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_would_fill_memory_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptSegment, match="decompresses to more than"):
        read(batch_of(bytes(65 * MIB), 1, codec))


def test_a_segment_of_large_batches_is_opened_a_part_at_a_time() -> None:
    """Two gigabytes in a segment of some kilobytes."""
    large = record_of(bytes(40 * MIB))
    out = bytearray()
    for number in range(50):
        batch = bytearray(batch_of(large, 1, Codec.ZSTD))
        struct.pack_into(">q", batch, 0, number)
        out += batch
    heads = scan_heads(bytes(out), 0, len(out))
    tracemalloc.start()
    try:
        rows = sum(batch.num_rows for batch in read_columns(bytes(out), heads, Wanted(columns=("offset",))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 50
    assert peak < 500 * MIB


def record_of(value: bytes) -> bytes:
    body = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + b"\x00"
    return varint(len(body)) + body


SIZES = st.sampled_from([7, 8, 63, 64, 65, 127, 128, 8_190, 8_191, 8_192, 9_000])


@quick(200)
@given(
    batches=st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=1, max_size=4),
    broken=st.none() | st.tuples(st.floats(0, 1), st.integers(0, 255)),
    more=st.integers(0, 1),
)
def test_records_are_found_the_same_side_by_side_and_one_by_one(
    batches: list[list[int]], broken: tuple[float, int] | None, more: int
) -> None:
    """Lengths of one, two and three bytes, one byte of any value, and a record more than there is."""
    bodies = [b"".join(varint(size) + bytes(size) for size in sizes) for sizes in batches]
    data = np.frombuffer(b"".join(bodies), np.uint8).copy()
    if broken is not None:
        data[min(int(broken[0] * len(data)), len(data) - 1)] = broken[1]
    ends = np.cumsum([len(body) for body in bodies])
    counts = np.array([len(sizes) for sizes in batches])
    counts[-1] += more
    laid = Bodies(data=data, starts=ends - [len(body) for body in bodies], ends=ends, counts=counts)
    first = np.cumsum(counts) - counts

    def found(walk: Callable[[NDArray[np.int64]], None]) -> list[int] | None:
        starts = np.zeros(int(counts.sum()), np.int64)
        try:
            walk(starts)
        except CorruptSegment:
            return None
        return starts.tolist()

    one_by_one = found(lambda starts: _follow(laid, starts))
    assert found(lambda starts: _step(laid, first, starts)) == one_by_one
    if broken is None:
        assert (one_by_one is None) == bool(more)

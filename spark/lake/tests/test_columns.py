"""Columns equal what a record-by-record decoder reads, and broken bytes are refused as such."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.columns import FIELDS, Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, Heads, scan_heads
from kafscale.wire.batches import BatchHeader, crc32c, pack_batch
from kafscale.wire.compression import compress, decompress
from kafscale.wire.records import Codec, Record, build_batch, records_in, split_batches

from spark.lake.tests.examples import quick

BODY = 61
LOG_APPEND_TIME = 0x08
CONTROL = 0x20
TIMES = st.integers(0, 1 << 41)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=4).map(tuple)
RECORDS = st.builds(
    Record,
    timestamp=TIMES,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=9_000),
    headers=HEADERS,
)
BATCHES = st.tuples(
    st.lists(RECORDS, min_size=1, max_size=9), st.sampled_from(list(Codec)), st.integers(0, 3)
)
SEGMENTS = st.lists(BATCHES, min_size=1, max_size=6)
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def laid(batches: Sequence[tuple[list[Record], Codec, int]], start: int = 5) -> bytes:
    """A segment's body: each batch behind the last one and a gap, as compaction leaves them."""
    out, offset = bytearray(), start
    for records, codec, gap in batches:
        offset += gap
        batch = bytearray(build_batch(records, codec=codec))
        struct.pack_into(">q", batch, 0, offset)
        out += batch
        offset += len(records)
    return bytes(out)


def table(segment: bytes, wanted: Wanted | None = None, heads: Heads | None = None) -> pa.Table:
    wanted = wanted or Wanted()
    heads = scan_heads(segment, 0, len(segment)) if heads is None else heads
    return pa.Table.from_batches(read_columns(segment, heads, wanted), schema=wanted.schema)


def rows(found: pa.Table) -> list[Row]:
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    headers = [[(each["key"], each["value"]) for each in some] for some in found["headers"].to_pylist()]
    columns = (found[name].to_pylist() for name in ("key", "value"))
    return list(zip(found["offset"].to_pylist(), times, *columns, headers, strict=True))


def expected(segment: bytes) -> list[Row]:
    return [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for header, batch in split_batches(segment)
        for record in records_in(batch, header)
    ]


@quick(60)
@given(SEGMENTS)
def test_columns_hold_what_each_record_says(batches: list[tuple[list[Record], Codec, int]]) -> None:
    segment = laid(batches)
    assert rows(table(segment)) == expected(segment)


@pytest.mark.parametrize(("batches", "each"), [(400, 3), (3, 2_000), (1, 1), (150, 140)])
def test_many_short_chains_and_few_long_ones_are_walked_alike(batches: int, each: int) -> None:
    records = [Record(timestamp=number, key=b"k" * (number % 90), value=None) for number in range(each)]
    segment = laid([(records, Codec(number % 2), 0) for number in range(batches)])
    assert rows(table(segment)) == expected(segment)


@quick(60)
@given(SEGMENTS, st.integers(0, 60), st.integers(0, 60))
def test_only_the_offsets_asked_for_come_out(
    batches: list[tuple[list[Record], Codec, int]], first: int, end: int
) -> None:
    segment = laid(batches)
    found = rows(table(segment, Wanted(first=first, end=end)))
    assert found == [row for row in expected(segment) if first <= row[0] < end]


@pytest.mark.parametrize("name", FIELDS)
def test_a_column_alone_is_the_column_among_all(name: str) -> None:
    records = [Record(timestamp=n, key=b"k", value=b"v" * n, headers=(("h", b"x"),) * n) for n in range(5)]
    segment = laid([(records, Codec.ZSTD, 0), (records, Codec.NONE, 2)])
    alone = table(segment, Wanted(columns=(name,)))
    assert alone.column_names == [name]
    assert alone[name].equals(table(segment)[name])


def test_a_batch_of_the_logs_time_has_one_time() -> None:
    header, batch = split_batches(
        laid([([Record(timestamp=1, value=b"a"), Record(timestamp=9)], Codec.NONE, 0)])
    )[0]
    stamped = changed(header, attributes=LOG_APPEND_TIME, max_timestamp=777, body=bytes(batch[BODY:]))
    found = table(stamped)
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [777, 777]
    assert found["timestampType"].to_pylist() == [1, 1]


def test_markers_of_transactions_are_no_records() -> None:
    header, batch = split_batches(laid([([Record(timestamp=1, key=b"\0\0\0\1")], Codec.NONE, 0)]))[0]
    marker = changed(header, attributes=CONTROL, body=bytes(batch[BODY:]))
    data = laid([([Record(timestamp=1, value=b"data")], Codec.NONE, 0)], start=6)
    assert table(marker + data)["value"].to_pylist() == [b"data"]


def changed(header: BatchHeader, body: bytes, **fields: int) -> bytes:
    """The batch with other fields and the checksum that fits."""
    values = {name: getattr(header, name) for name in BatchHeader.__struct_fields__} | fields
    return bytes(pack_batch(BatchHeader(**values), body))


@quick(300)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from([Codec.NONE, Codec.LZ4]), st.data())
def test_bytes_that_no_producer_should_send_are_refused_or_read_within_bounds(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    """The checksum fits: a producer may send anything. What comes out lies within the batch, or it is refused."""
    header, batch = split_batches(laid([(records, Codec.NONE, 0)]))[0]
    body = bytearray(batch[BODY:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    bent = changed(header, attributes=int(codec), body=compress(codec, bytes(body)))
    try:
        found = rows(table(bent))
    except CorruptSegment:
        return
    assert len(found) == len(records)
    inside = decompress(codec, split_batches(bent)[0][1][BODY:])
    assert sum(len(key or b"") + len(value or b"") for _, _, key, value, _ in found) <= len(inside)


def test_a_checksum_that_does_not_fit_is_refused() -> None:
    segment = bytearray(laid([([Record(timestamp=1, value=b"value")], Codec.NONE, 0)]))
    segment[-2] ^= 1
    with pytest.raises(CorruptSegment, match="checksum"):
        table(bytes(segment))
    assert crc32c(bytes(segment[21:])) != int.from_bytes(segment[17:21], "big")


@pytest.mark.parametrize("cut", [1, 20, 61, 70])
def test_a_segment_that_ends_inside_a_batch_is_refused(cut: int) -> None:
    segment = laid([([Record(timestamp=1, value=b"value" * 9)], Codec.NONE, 0)])
    with pytest.raises(CorruptSegment, match="cut short|a batch of"):
        scan_heads(segment, 0, len(segment) - cut)


@quick(100)
@given(st.binary(max_size=300))
def test_no_bytes_at_all_raise_anything_else(noise: bytes) -> None:
    with contextlib.suppress(CorruptSegment):
        table(noise)

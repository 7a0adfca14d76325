"""Records of a segment as Arrow columns, with the column names of Spark's Kafka connector.

Arrow copies keys, values and headers once, from the object's bytes or from the decompressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from kafscale.lake.heads import CorruptSegment, Heads, check_crcs
from kafscale.lake.rows import Bodies, Bytes, Positions, Rows, read_rows, read_varints, skipped
from kafscale.wire.batches import CODEC_MASK, CONTROL, HEADER_SIZE, LOG_APPEND_TIME
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import Codec, decompress
from kafscale.wire.errors import WireError
from numpy.typing import NDArray

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS: Final = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestampType": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADER_TYPE,
}
TIME_MIN_MS: Final = -62_135_596_800_000
TIME_MAX_MS: Final = 253_402_300_799_999
ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 16 << 20
"""Record bytes per Arrow batch. A single record batch may exceed this when it is decompressed."""
SEGMENT_BYTES_MAX: Final = (1 << 31) - 1
"""Arrow's offsets have 32 bits, like a segment's size in a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns to read, in this order, and the offset range."""

    columns: tuple[str, ...] = tuple(FIELDS)
    first: int = 0
    end: int = 1 << 62

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, FIELDS[name]) for name in self.columns])


def read_columns(segment: Buffer, heads: Heads, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The selected records of these batches, in log order, without transaction markers.

    Raises CorruptSegment, also for a wrong checksum.
    """
    last = heads["base_offset"] + heads["last_offset_delta"]
    chosen = (last >= wanted.first) & (heads["base_offset"] < wanted.end)
    chosen &= (heads["attributes"] & CONTROL) == 0
    heads = heads[chosen & (heads["records"] > 0)]
    for some, bodies, rows in opened(segment, heads):
        yield _batch(bodies, rows, some, wanted)


def opened(segment: Buffer, heads: Heads) -> Iterator[tuple[Heads, Bodies, Rows]]:
    """The records of these batches, a few batches at a time. Raises CorruptSegment, also for a wrong checksum."""
    assert len(segment) <= SEGMENT_BYTES_MAX, len(segment)
    check_crcs(segment, heads)
    for bodies, some in _chunks(segment, heads):
        rows = read_rows(bodies)
        if ((rows.offset_delta < 0) | (rows.offset_delta > some["last_offset_delta"][rows.batch])).any():
            raise CorruptSegment("a record's offset is not one of its batch", int(some["position"][0]))
        yield some, bodies, rows


def _chunks(segment: Buffer, heads: Heads) -> Iterator[tuple[Bodies, Heads]]:
    """Whole record batches that together make one Arrow batch. Each is decompressed only when it is read, because
    a segment may decompress to a thousand times its size."""
    begin, rows, size = 0, 0, 0
    parts: list[Buffer] = []
    for index, part in enumerate(_parts(segment, heads)):
        records = int(heads["records"][index])
        if parts and (rows + records > ROWS_MAX or size + len(part) > BYTES_MAX):
            yield _bodies(segment, heads[begin:index], parts), heads[begin:index]
            begin, rows, size, parts = index, 0, 0, []
        parts.append(part)
        rows += records
        size += len(part)
    if parts:
        yield _bodies(segment, heads[begin:], parts), heads[begin:]


def _parts(segment: Buffer, heads: Heads) -> Iterator[Buffer]:
    """The record bytes of each batch, decompressed."""
    view = memoryview(segment)
    ends = heads["position"] + heads["size"]
    codecs = heads["attributes"] & CODEC_MASK
    for codec, start, end in zip(
        codecs.tolist(), (heads["position"] + HEADER_SIZE).tolist(), ends.tolist(), strict=True
    ):
        try:
            yield decompress(Codec(codec), view[start:end]) if codec else view[start:end]
        except (WireError, ValueError) as broken:
            raise CorruptSegment(str(broken), start) from broken


def _bodies(segment: Buffer, heads: Heads, parts: Sequence[Buffer]) -> Bodies:
    """Copies nothing if nothing was compressed."""
    counts = heads["records"].astype(np.int64)
    if not (heads["attributes"] & CODEC_MASK).any():
        return Bodies(
            data=np.frombuffer(segment, np.uint8),
            starts=heads["position"] + HEADER_SIZE,
            ends=heads["position"] + heads["size"],
            counts=counts,
        )
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join(parts), np.uint8)
    return Bodies(data=data, starts=ends - sizes, ends=ends, counts=counts)


def _batch(bodies: Bodies, rows: Rows, heads: Heads, wanted: Wanted) -> pa.RecordBatch:
    offsets = heads["base_offset"][rows.batch] + rows.offset_delta
    keep = (offsets >= wanted.first) & (offsets < wanted.end)
    arrays: dict[str, pa.Array] = {}
    for name in wanted.columns:
        match name:
            case "offset":
                arrays[name] = pa.array(offsets)
            case "timestamp":
                arrays[name] = timestamps(times_of(rows, heads))
            case "timestampType":
                flags = (heads["attributes"] & LOG_APPEND_TIME) != 0
                arrays[name] = pa.array(flags[rows.batch].astype(np.int32))
            case "key":
                arrays[name] = binaries(bodies.data, rows.key_at, rows.key_length)
            case "value":
                arrays[name] = binaries(bodies.data, rows.value_at, rows.value_length)
            case "headers":
                arrays[name] = _headers(bodies.data, rows)
    found = pa.RecordBatch.from_arrays([arrays[name] for name in wanted.columns], schema=wanted.schema)
    return found if keep.all() else found.filter(pa.array(keep))


def times_of(rows: Rows, heads: Heads) -> Positions:
    """The timestamp of each record in ms. All records of a LogAppendTime batch have the same."""
    appended = (heads["attributes"] & LOG_APPEND_TIME) != 0
    base = np.where(appended, heads["max_timestamp"], heads["base_timestamp"])
    times: Positions = base[rows.batch] + np.where(appended[rows.batch], 0, rows.timestamp_delta)
    return times


def timestamps(times_ms: Positions, told: NDArray[np.bool_] | None = None) -> pa.Array:
    """Timestamps that SQL, Spark and Python can all represent. Missing ones and those outside of years 1 to 9999
    are null.

    Some producers send seconds or nanoseconds by mistake. Such a record must not fail every query of its topic.
    """
    unknown = (times_ms < TIME_MIN_MS) | (times_ms > TIME_MAX_MS)
    if told is not None:
        unknown |= ~told
    return pa.array(times_ms, mask=unknown if unknown.any() else None).cast(FIELDS["timestamp"])


def binaries(data: Bytes, at: Positions, lengths: Positions) -> pa.Array:
    """Slices of the data, null where a length is -1. Positions ascend, so one array of slices and gaps suffices."""
    offsets = np.empty(2 * len(at) + 1, np.int32)
    offsets[0:-1:2] = at
    offsets[1::2] = at + np.maximum(lengths, 0)
    offsets[-1] = offsets[-2] if len(at) else 0
    laid = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    index = np.arange(0, 2 * len(at), 2)
    nulls = lengths < 0
    return laid.take(pa.array(index, mask=nulls if nulls.any() else None))


def _headers(data: Bytes, rows: Rows) -> pa.Array:
    counts = rows.header_count
    total = int(counts.sum())
    first = np.cumsum(counts) - counts
    places = np.empty((4, total), np.int64)  # position and length of key and value
    active = np.flatnonzero(counts)
    at = rows.headers_at[active]
    number = 0
    while active.size:
        ends = rows.ends[active]
        key_length, key_at = read_varints(data, at)
        value_length, value_at = read_varints(data, skipped(key_length, key_at, ends))
        if (key_length < 0).any():
            raise CorruptSegment("a header without a name", int(at[0]))
        at = skipped(value_length, value_at, ends)
        places[:, first[active] + number] = key_at, key_length, value_at, value_length
        number += 1
        done = counts[active] == number
        if (at[done] != ends[done]).any():
            raise CorruptSegment("bytes behind a record's last header", int(at[done][0]))
        active, at = active[~done], at[~done]
    names = _texts(binaries(data, places[0], places[1]))
    values = binaries(data, places[2], places[3])
    items = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(
        pa.array(np.append(first, total).astype(np.int32)), items, type=HEADER_TYPE
    )


def _texts(names: pa.Array) -> pa.Array:
    """Replaces invalid UTF-8 in names by U+FFFD, as Java's clients do: one such header must not make a topic
    unreadable."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())

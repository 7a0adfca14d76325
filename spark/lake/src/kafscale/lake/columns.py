"""Records of a segment as Arrow columns, with the names that Spark's Kafka connector gives them.

Keys, values and headers are copied once, by Arrow, out of the bytes that the object store gave or a codec made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from kafscale.lake.heads import CorruptSegment, Heads, check_crcs
from kafscale.lake.rows import Bodies, Rows, read_rows
from kafscale.lake.varints import BrokenVarint, Bytes, Positions, read_varints
from kafscale.wire.batches import CODEC_MASK, CONTROL, HEADER_SIZE, LOG_APPEND_TIME
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import Codec, decompress
from kafscale.wire.errors import WireError

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS: Final = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestampType": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADER_TYPE,
}
ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 256 << 20
"""Of record bytes in one Arrow batch, so that its offsets fit 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns, in this order, of which offsets."""

    columns: tuple[str, ...] = tuple(FIELDS)
    first: int = 0
    end: int = 1 << 62

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, FIELDS[name]) for name in self.columns])


def read_columns(segment: Buffer, heads: Heads, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The wanted records of these batches, in order of the log; markers of transactions are left out.

    Raises CorruptSegment, also for a checksum that does not fit.
    """
    last = heads["base_offset"] + heads["last_offset_delta"]
    chosen = (last >= wanted.first) & (heads["base_offset"] < wanted.end)
    chosen &= (heads["attributes"] & CONTROL) == 0
    heads = heads[chosen & (heads["records"] > 0)]
    check_crcs(segment, heads)
    for some in _chunks(heads):
        bodies = _bodies(segment, some)
        yield _batch(bodies, read_rows(bodies), some, wanted)


def _chunks(heads: Heads) -> Iterator[Heads]:
    """Whole batches that together make one Arrow batch."""
    begin, rows, size = 0, 0, 0
    for index, (records, each) in enumerate(
        zip(heads["records"].tolist(), heads["size"].tolist(), strict=True)
    ):
        if index > begin and (rows + records > ROWS_MAX or size + each > BYTES_MAX):
            yield heads[begin:index]
            begin, rows, size = index, 0, 0
        rows += records
        size += each
    if begin < len(heads):
        yield heads[begin:]


def _bodies(segment: Buffer, heads: Heads) -> Bodies:
    counts = heads["records"].astype(np.int64)
    starts, ends = heads["position"] + HEADER_SIZE, heads["position"] + heads["size"]
    codecs = heads["attributes"] & CODEC_MASK
    if not codecs.any():
        return Bodies(data=np.frombuffer(segment, np.uint8), starts=starts, ends=ends, counts=counts)
    view = memoryview(segment)
    parts = []
    for codec, start, end in zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True):
        try:
            parts.append(decompress(Codec(codec), view[start:end]) if codec else view[start:end])
        except (WireError, ValueError) as broken:
            raise CorruptSegment(str(broken), start) from broken
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    return Bodies(
        data=np.frombuffer(b"".join(parts), np.uint8), starts=ends - sizes, ends=ends, counts=counts
    )


def _batch(bodies: Bodies, rows: Rows, heads: Heads, wanted: Wanted) -> pa.RecordBatch:
    if ((rows.offset_delta < 0) | (rows.offset_delta > heads["last_offset_delta"][rows.batch])).any():
        raise CorruptSegment("a record's offset is not one of its batch", int(heads["position"][0]))
    offsets = heads["base_offset"][rows.batch] + rows.offset_delta
    keep = (offsets >= wanted.first) & (offsets < wanted.end)
    arrays: dict[str, pa.Array] = {}
    for name in wanted.columns:
        match name:
            case "offset":
                arrays[name] = pa.array(offsets)
            case "timestamp":
                arrays[name] = _timestamps(rows, heads)
            case "timestampType":
                flags = (heads["attributes"] & LOG_APPEND_TIME) != 0
                arrays[name] = pa.array(flags[rows.batch].astype(np.int32))
            case "key":
                arrays[name] = _binary(bodies.data, rows.key_at, rows.key_length)
            case "value":
                arrays[name] = _binary(bodies.data, rows.value_at, rows.value_length)
            case "headers":
                arrays[name] = _headers(bodies.data, rows)
    found = pa.RecordBatch.from_arrays([arrays[name] for name in wanted.columns], schema=wanted.schema)
    return found if keep.all() else found.filter(pa.array(keep))


def _timestamps(rows: Rows, heads: Heads) -> pa.Array:
    """A batch of LogAppendTime has one time for all."""
    appended = (heads["attributes"] & LOG_APPEND_TIME) != 0
    base = np.where(appended, heads["max_timestamp"], heads["base_timestamp"])
    times = base[rows.batch] + np.where(appended[rows.batch], 0, rows.timestamp_delta)
    return pa.array(times).cast(FIELDS["timestamp"])


def _binary(data: Bytes, at: Positions, lengths: Positions, kind: pa.DataType = FIELDS["value"]) -> pa.Array:
    """Slices of the data, null where a length is -1. Places rise, so one array of slices and gaps holds them all."""
    offsets = np.empty(2 * len(at) + 1, np.int32)
    offsets[0:-1:2] = at
    offsets[1::2] = at + np.maximum(lengths, 0)
    offsets[-1] = offsets[-2] if len(at) else 0
    laid = pa.Array.from_buffers(kind, 2 * len(at), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    index = np.arange(0, 2 * len(at), 2)
    nulls = lengths < 0
    return laid.take(pa.array(index, mask=nulls if nulls.any() else None))


def _headers(data: Bytes, rows: Rows) -> pa.Array:
    counts = rows.header_count
    total = int(counts.sum())
    if total * 2 > int((rows.ends - rows.headers_at).sum()):
        raise CorruptSegment("more headers than bytes can hold", 0)
    ends = np.cumsum(counts)
    first = ends - counts
    places = np.empty((4, total), np.int64)  # of key and value: where, how long
    active = np.flatnonzero(counts)
    at = rows.headers_at[active]
    number = 0
    try:
        while active.size:
            key_length, key_at = read_varints(data, at)
            value_length, value_at = read_varints(data, key_at + np.maximum(key_length, 0))
            at = value_at + np.maximum(value_length, 0)
            if ((key_length < 0) | (value_length < -1) | (at > rows.ends[active])).any():
                raise CorruptSegment("a header does not fit its record", int(rows.headers_at[active[0]]))
            places[:, first[active] + number] = key_at, key_length, value_at, value_length
            number += 1
            done = counts[active] == number
            if (at[done] != rows.ends[active[done]]).any():
                raise CorruptSegment("bytes behind a record's last header", int(at[done][0]))
            active, at = active[~done], at[~done]
    except BrokenVarint as broken:
        raise CorruptSegment(str(broken), 0) from broken
    keys = _binary(data, places[0], places[1], pa.binary())
    values = _binary(data, places[2], places[3])
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid as broken:
        raise CorruptSegment(f"a header's name is not UTF-8: {broken}", 0) from broken
    items = pa.StructArray.from_arrays([texts, values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(
        pa.array(np.append(first, total).astype(np.int32)), items, type=HEADER_TYPE
    )

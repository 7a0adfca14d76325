"""Finds the positions of the fields of each record in some batches with numpy, without an object per record.

The records of a batch form a chain: the length of each gives the start of the next. The chains of different batches
are independent, so one step finds record k of every batch. A few long chains are followed record by record.
A checksum only proves what the producer sent, so every value is checked: each record must end at its length, and each
batch at the end of its bytes.

Numbers are zig-zag varints (protobuf's sint), read at many positions at once. Two bytes are read at every position;
most values need no more. Positions outside of the data read the nearest byte. The caller must compare each end position
with the expected one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from kafscale.lake.heads import CorruptSegment
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

STEP_COST: Final = 60
"""The cost of one step over all batches, as the number of records that are followed one by one in the same time."""
UNTOLD: Final = -1
RECORD_BYTES_MIN: Final = 7
HEADER_BYTES_MIN: Final = 2
VARINT_BYTES_MAX: Final = 10


def read_varints(data: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """The values at these positions, and the positions after them. Raises CorruptSegment."""
    low = data.take(at, mode="clip")
    longer = low >= 0x80
    raw = (low & 0x7F).astype(np.int64)
    behind = at + 1
    if longer.any():
        high = data.take(behind, mode="clip")
        high[~longer] = 0
        raw |= (high & 0x7F).astype(np.int64) << 7
        behind += longer
        if (high >= 0x80).any():
            _finish(data, raw, behind, np.flatnonzero(high >= 0x80))
    return (raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF ^ -(raw & 1), behind


def _finish(data: Bytes, raw: Positions, behind: Positions, rows: Positions) -> None:
    """Reads the third and later bytes of the few varints that have them."""
    for shift in range(14, 7 * VARINT_BYTES_MAX, 7):
        byte = data.take(behind[rows], mode="clip").astype(np.int64)
        behind[rows] += 1
        raw[rows] |= (byte & 0x7F) << shift
        rows = rows[byte >= 0x80]
        if not rows.size:
            return
    raise CorruptSegment(f"a varint of more than {VARINT_BYTES_MAX} bytes", int(behind[rows[0]]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """The record bytes of batches in one buffer: batch i has `counts[i]` records in bytes [starts[i], ends[i])."""

    data: Bytes
    starts: Positions
    ends: Positions
    counts: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The fields of each record, in order; a length of -1 is null."""

    batch: Positions  # the batch of each record
    timestamp_delta: Positions
    offset_delta: Positions
    key_at: Positions
    key_length: Positions
    value_at: Positions
    value_length: Positions
    header_count: Positions
    headers_at: Positions
    ends: Positions


def read_rows(bodies: Bodies) -> Rows:
    """Raises CorruptSegment for records that do not fit their batch."""
    if ((bodies.ends - bodies.starts) < bodies.counts * RECORD_BYTES_MIN).any():
        raise CorruptSegment("more records than bytes can hold", 0)
    data = bodies.data
    starts = _starts(bodies)
    length, at = read_varints(data, starts)
    ends = at + length
    timestamp_delta, at = read_varints(data, at + 1)  # behind a byte of attributes that Kafka does not use
    offset_delta, at = read_varints(data, at)
    key_length, key_at = read_varints(data, at)
    value_length, value_at = read_varints(data, skipped(key_length, key_at, ends))
    header_count, headers_at = read_varints(data, skipped(value_length, value_at, ends))
    wrong = (
        (headers_at > ends) | (header_count < 0) | (header_count > (ends - headers_at) // HEADER_BYTES_MIN)
    )
    wrong |= (header_count == 0) & (headers_at != ends)
    if wrong.any():
        raise CorruptSegment("a record does not end where it says", int(starts[np.argmax(wrong)]))
    return Rows(
        batch=np.repeat(np.arange(len(bodies.counts)), bodies.counts),
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
        header_count=header_count,
        headers_at=headers_at,
        ends=ends,
    )


def skipped(lengths: Positions, at: Positions, ends: Positions) -> Positions:
    """The positions after fields of these lengths (-1: null); no field may exceed its end.

    A length is compared before it is added, because a 64-bit sum may overflow to a valid position.
    """
    wrong = (lengths < -1) | (lengths > ends - at)
    if wrong.any():
        raise CorruptSegment("a field does not fit its record", int(at[np.argmax(wrong)]))
    return at + np.maximum(lengths, 0)


def _starts(bodies: Bodies) -> Positions:
    """Where each record begins, including its length field."""
    counts = bodies.counts
    total = int(counts.sum())
    starts = np.empty(total, np.int64)
    first = np.cumsum(counts) - counts
    if not total:
        return starts
    if int(counts.max()) * STEP_COST < total:
        _step(bodies, first, starts)
    else:
        _follow(bodies, starts)
    return starts


def _step(bodies: Bodies, first: Positions, starts: Positions) -> None:
    """Follows one record of each batch per step. Batches are sorted by record count, the largest first, so that
    finished batches leave at the end."""
    order = np.argsort(-bodies.counts, kind="stable")
    at, ends = bodies.starts[order], bodies.ends[order]
    rows, counts = first[order], bodies.counts[order]
    left = np.searchsorted(-counts, -np.arange(int(counts[0])), side="left")
    for number, alive in enumerate(left.tolist()):
        here = at[:alive]
        starts[rows[:alive] + number] = here
        at[:alive] = _behind(bodies.data, here, ends[:alive])
    if (at != ends).any():
        raise CorruptSegment("bytes behind a batch's last record", int(at[0]))


def _behind(data: Bytes, at: Positions, ends: Positions) -> Positions:
    """Where the records at these positions end. For all but large records, a table lookup by two bytes suffices."""
    pair = data.take(at, mode="clip").astype(np.int64) << 8
    pair |= data.take(at + 1, mode="clip")
    size = _sizes().take(pair)
    if (size == UNTOLD).any():
        length, behind = read_varints(data, at)
        wrong = (length < 0) | (length > ends - behind)
        size = np.where(wrong, 0, length) + (behind - at)
    else:
        wrong = size > ends - at
    if wrong.any():
        raise CorruptSegment("a record does not fit its batch", int(at[np.argmax(wrong)]))
    return at + size


@cache
def _sizes() -> Positions:
    """The size of a record including its length field, by its first two bytes: `first << 8 | second`."""
    first, second = np.divmod(np.arange(1 << 16), 1 << 8)
    longer = first >= 0x80
    raw = np.where(longer, (first & 0x7F) | (second << 7), first)
    untold = (raw & 1 == 1) | (longer & (second >= 0x80))  # negative, or of three bytes and more
    return np.where(untold, UNTOLD, (raw >> 1) + 1 + longer)


def _follow(bodies: Bodies, starts: Positions) -> None:
    data = bodies.data.tobytes() if not bodies.data.flags.c_contiguous else bodies.data.data
    found: list[int] = []
    add = found.append
    for at, end, count in zip(
        bodies.starts.tolist(), bodies.ends.tolist(), bodies.counts.tolist(), strict=True
    ):
        position = at
        for _ in range(count):
            add(position)
            if position >= end:
                raise CorruptSegment("a record does not fit its batch", position)
            raw = data[position]
            position += 1
            if raw >= 0x80:
                raw, position = _rest(data, raw & 0x7F, position, end)
            if raw & 1:
                raise CorruptSegment("a record of negative length", position)
            position += raw >> 1
        if position != end:
            raise CorruptSegment("bytes behind a batch's last record", position)
    starts[:] = found


def _rest(data: memoryview | bytes, raw: int, position: int, end: int) -> tuple[int, int]:
    """Reads a varint's second byte and the bytes after it."""
    shift = 7
    while position < end and shift < 35:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
    raise CorruptSegment("a record's length does not end", position)

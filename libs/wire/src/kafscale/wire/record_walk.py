"""One walk over a batch's records, and readers that create no record objects.

The walk is bounded by the batch's own count and by limits on records and decompressed bytes; any varint, length or
count that does not fit is a WireError. A small batch may hold millions of headers, so their number has a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafscale.wire.batches import HEADER_SIZE, RECORDS_MAX, BatchHeader, read_batch_header
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX, decompress
from kafscale.wire.errors import ErrorCode, WireError

HEADERS_MAX: Final = 1_000_000
"""Headers of all records of a batch: about a second of CPU, and 200 MB if header objects are created."""
VARINT_BYTES: Final = range(0, 35, 7)
VARLONG_BYTES: Final = range(0, 70, 7)


class HeaderBudget:
    """The number of record headers that may still be read, for one batch or for several batches together."""

    __slots__ = ("_left", "_max")

    def __init__(self, headers_max: int = HEADERS_MAX) -> None:
        self._max = self._left = headers_max

    def take(self, count: int) -> None:
        """Raises MESSAGE_TOO_LARGE beyond the budget, on which a client splits the batch and sends its records
        again."""
        self._left -= count
        if self._left < 0:
            reason = f"over {self._max} headers in its records"
            raise WireError("record batch", reason, code=ErrorCode.MESSAGE_TOO_LARGE)


def places_in(batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record in order. Keys, values and headers stay closed, so each
    step costs the same."""
    header = read_batch_header(batch)
    base, last = header.base_offset, header.last_offset_delta
    time = header.base_timestamp
    stamp = header.max_timestamp if header.is_log_append_time else None
    for timestamp_delta, delta, _, _ in walk(header, body_of(header, batch, bytes_max)):
        if not 0 <= delta <= last:
            raise outside(header, delta)
        yield base + delta, time + timestamp_delta if stamp is None else stamp


# --- the walk ----------------------------------------------------------------------------------------


def body_of(header: BatchHeader, batch: Buffer, bytes_max: int) -> bytes:
    try:
        codec = header.codec
    except ValueError as unknown:
        raise WireError(
            "record batch", str(unknown), code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ) from unknown
    return decompress(codec, memoryview(batch)[HEADER_SIZE:], bytes_max=bytes_max)


def walk(header: BatchHeader, body: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """Yields (timestamp delta, offset delta, start of the key, end of the record) for each record of a batch. The bytes
    in between stay closed, so each step costs the same."""
    count, size_all = header.records_count, len(body)
    if count > RECORDS_MAX:
        raise WireError("record batch", f"{count} records", code=ErrorCode.MESSAGE_TOO_LARGE)
    if not 0 <= count <= size_all:
        raise WireError("record batch", f"{count} records in {size_all} bytes")
    pos = 0
    try:
        for _ in range(count):
            size, pos = signed(body, pos, VARINT_BYTES)
            end = pos + size
            if size < 0 or end > size_all:
                raise WireError("record", f"{size} bytes long", offset=pos)
            # the attributes of a record are unused
            timestamp_delta, pos = signed(body, pos + 1, VARLONG_BYTES)
            offset_delta, pos = signed(body, pos, VARINT_BYTES)
            if pos > end:
                raise WireError("record", f"{size} bytes are too few", offset=end)
            yield timestamp_delta, offset_delta, pos, end
            pos = end
    except IndexError as broken:
        raise WireError("record", f"cut short ({broken})", offset=pos) from broken
    if pos != size_all:
        raise WireError("record batch", f"{size_all - pos} bytes behind the last record", offset=pos)


def outside(header: BatchHeader, delta: int) -> WireError:
    return WireError("record", f"offset delta {delta} of {header.last_offset_delta}")


def misfit(size: int, pos: int, end: int) -> WireError:
    return WireError("record", f"{size} bytes in {end - pos}", offset=pos)


def headers_bounded(pos: int, end: int, count: int, budget: HeaderBudget) -> None:
    if not 0 <= count <= (end - pos) // 2:
        raise WireError("record", f"{count} headers", offset=pos)
    budget.take(count)


def signed(data: Buffer, pos: int, shifts: range) -> tuple[int, int]:
    """A zigzag varint of at most one byte per shift. Unrolled, because most have one or two bytes."""
    byte = data[pos]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), pos + 1
    second = data[pos + 1]
    if second < 128:
        value = byte & 0x7F | second << 7
        return value >> 1 ^ -(value & 1), pos + 2
    value = 0
    for shift in shifts:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value >> (64 if len(shifts) > 5 else 32):
                break
            return value >> 1 ^ -(value & 1), pos
    raise WireError("record", "a varint is too long", offset=pos)

"""Record batches from the inside: records read one by one, and batches made of records.

Brokers rarely need this: only timestamps inside a batch, keys of compacted topics, and tools open a batch.
There is one walk over a batch's records, `_walk`; the readers differ in how far they open what it finds. It is bounded
by the batch's own count and by limits on records and decompressed bytes; any varint, length or count that does not fit
is a WireError. What a record's headers hold can be a hundred times as large in memory as on the wire: their number has
a limit too, and a caller that does not need them leaves them closed. What concerns whole batches is in `batches` and
offered here too.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from kafscale.wire.batches import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    RECORDS_MAX,
    TIMESTAMP_NONE,
    TRANSACTIONAL,
    BatchHeader,
    has_valid_crc,
    pack_batch,
    patch_batch,
    placed_batch,
    read_batch_header,
    split_batches,
    stamp_log_append_time,
    validate_batch,
)
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from kafscale.wire.errors import ErrorCode, WireError

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "HEADERS_MAX",
    "HEADER_SIZE",
    "MAGIC",
    "BatchHeader",
    "Codec",
    "HeaderBudget",
    "Record",
    "append_record",
    "build_batch",
    "has_valid_crc",
    "keyless_in",
    "patch_batch",
    "placed_batch",
    "places_in",
    "read_batch_header",
    "records_in",
    "signed_varint",
    "split_batches",
    "stamp_log_append_time",
    "validate_batch",
]

HEADERS_MAX: Final = 1_000_000
"""Of all records of a batch: a second's work, and two hundred megabytes where they are made."""
PORTION: Final = 256
"""Records, or headers of one record, that are looked at without a pause."""
_NAME_PORTION_BYTES: Final = 64 << 10
_VARINT_BYTES: Final = range(0, 35, 7)
_VARLONG_BYTES: Final = range(0, 70, 7)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; a null key or value is None, and so is a null header value."""

    offset: int = 0
    timestamp: int = TIMESTAMP_NONE
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class HeaderBudget:
    """How many headers of records may still be looked at; one for each batch, or for batches that came together."""

    __slots__ = ("_left", "_max")

    def __init__(self, headers_max: int = HEADERS_MAX) -> None:
        self._max = self._left = headers_max

    def take(self, count: int) -> None:
        """MESSAGE_TOO_LARGE where they are too many: a client that splits such a batch gets its records through."""
        self._left -= count
        if self._left < 0:
            reason = f"over {self._max} headers in its records"
            raise WireError("record batch", reason, code=ErrorCode.MESSAGE_TOO_LARGE)


def records_in(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    headers: bool = True,
    headers_max: int = HEADERS_MAX,
) -> Iterator[Record]:
    """The records of one batch, in order; with the log's time where the batch says so. At most `headers_max` headers
    are made of all of them. Without `headers` they are left closed, and every record has none."""
    header = header or read_batch_header(batch)
    body = _body(header, batch, bytes_max)
    return _records(header, body, HeaderBudget(headers_max) if headers else None)


def places_in(batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record in order. Keys, values and headers stay closed: whatever a record holds,
    a step costs the same."""
    header = read_batch_header(batch)
    base, last = header.base_offset, header.last_offset_delta
    time = header.base_timestamp
    stamp = header.max_timestamp if header.is_log_append_time else None
    for timestamp_delta, delta, _, _ in _walk(header, _body(header, batch, bytes_max)):
        if not 0 <= delta <= last:
            raise _outside(header, delta)
        yield base + delta, time + timestamp_delta if stamp is None else stamp


def keyless_in(body: bytes, header: BatchHeader, budget: HeaderBudget | None = None) -> Iterator[list[int]]:
    """The places of the records without a key in a batch's (decompressed) body, in portions.

    For a caller that must not be stopped for long by a large batch: each portion is a fraction of a millisecond's work,
    and no record is made. Offsets that do not follow one another are INVALID_RECORD, more headers than the budget has
    are MESSAGE_TOO_LARGE; what is misshaped is another WireError.
    """
    budget = budget or HeaderBudget()
    keyless: list[int] = []
    index, pos, portion_end = 0, 0, PORTION
    try:
        for _, delta, pos, end in _walk(header, body):
            if delta != index:
                reason = f"has offset {delta} in its batch, and not {index}"
                raise WireError("record", reason, offset=pos, code=ErrorCode.INVALID_RECORD)
            size, pos = _signed(body, pos, _VARINT_BYTES)
            if size == -1:
                keyless.append(index)
            elif not 0 <= size <= end - pos:
                raise _misfit(size, pos, end)
            else:
                pos += size
            pos = _past_nullable(body, pos, end)
            headers, pos = _signed(body, pos, _VARINT_BYTES)
            if headers:
                pos = yield from _past_headers(body, pos, end, headers, budget)
            if pos != end:
                raise WireError("record", f"{end - pos} bytes behind its headers", offset=pos)
            if index == portion_end:
                yield keyless
                keyless, portion_end = [], index + PORTION
            index += 1
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})", offset=pos) from broken
    yield keyless


# --- the walk ----------------------------------------------------------------------------------------


def _body(header: BatchHeader, batch: Buffer, bytes_max: int) -> bytes:
    try:
        codec = header.codec
    except ValueError as unknown:
        raise WireError(
            "record batch", str(unknown), code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ) from unknown
    return decompress(codec, memoryview(batch)[HEADER_SIZE:], bytes_max=bytes_max)


def _walk(header: BatchHeader, body: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The one way through a batch: of each record (timestamp delta, offset delta, where its key begins, where the
    record ends). What lies between is left closed, so a step costs the same whatever a record holds."""
    count, size_all = header.records_count, len(body)
    if count > RECORDS_MAX:
        raise WireError("record batch", f"{count} records", code=ErrorCode.MESSAGE_TOO_LARGE)
    if not 0 <= count <= size_all:
        raise WireError("record batch", f"{count} records in {size_all} bytes")
    pos = 0
    try:
        for _ in range(count):
            size, pos = _signed(body, pos, _VARINT_BYTES)
            end = pos + size
            if size < 0 or end > size_all:
                raise WireError("record", f"{size} bytes long", offset=pos)
            # the attributes of a record are unused
            timestamp_delta, pos = _signed(body, pos + 1, _VARLONG_BYTES)
            offset_delta, pos = _signed(body, pos, _VARINT_BYTES)
            if pos > end:
                raise WireError("record", f"{size} bytes are too few", offset=end)
            yield timestamp_delta, offset_delta, pos, end
            pos = end
    except IndexError as broken:
        raise WireError("record", f"cut short ({broken})", offset=pos) from broken
    if pos != size_all:
        raise WireError("record batch", f"{size_all - pos} bytes behind the last record", offset=pos)


def _outside(header: BatchHeader, delta: int) -> WireError:
    return WireError("record", f"offset delta {delta} of {header.last_offset_delta}")


def _misfit(size: int, pos: int, end: int) -> WireError:
    return WireError("record", f"{size} bytes in {end - pos}", offset=pos)


def _past_nullable(body: bytes, pos: int, end: int) -> int:
    size, pos = _signed(body, pos, _VARINT_BYTES)
    if not -1 <= size <= end - pos:
        raise _misfit(size, pos, end)
    return pos + max(size, 0)


def _headers_bounded(pos: int, end: int, count: int, budget: HeaderBudget) -> None:
    if not 0 <= count <= (end - pos) // 2:
        raise WireError("record", f"{count} headers", offset=pos)
    budget.take(count)


def _past_headers(
    body: bytes, pos: int, end: int, count: int, budget: HeaderBudget
) -> Generator[list[int], None, int]:
    """The position behind a record's headers; portions are empty. Their names must be text."""
    _headers_bounded(pos, end, count, budget)
    for number in range(1, count + 1):
        start = pos
        size, pos = _signed(body, pos, _VARINT_BYTES)
        if not 0 <= size <= end - pos:
            raise WireError("record", f"a header's name of {size} bytes in {end - pos}", offset=start)
        if size <= _NAME_PORTION_BYTES:
            body[pos : pos + size].decode()
        else:
            yield from _past_long_name(body, pos, pos + size)
        pos = _past_nullable(body, pos + size, end)
        if number % PORTION == 0:
            yield []
    return pos


def _past_long_name(body: bytes, pos: int, end: int) -> Iterator[list[int]]:
    text = getincrementaldecoder("utf-8")()
    for at in range(pos, end, _NAME_PORTION_BYTES):
        part = body[at : min(at + _NAME_PORTION_BYTES, end)]
        text.decode(part, final=at + len(part) == end)
        yield []


def _records(header: BatchHeader, body: bytes, budget: HeaderBudget | None) -> Iterator[Record]:
    """Without a budget the headers stay closed."""
    base, last, time = header.base_offset, header.last_offset_delta, header.base_timestamp
    stamp = header.max_timestamp if header.is_log_append_time else None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    try:
        for timestamp_delta, delta, pos, end in _walk(header, body):
            key, pos = _nullable_bytes(body, pos, end)
            value, pos = _nullable_bytes(body, pos, end)
            if budget is not None:
                headers, pos = _headers(body, pos, end, budget)
            if pos > end or (budget is not None and pos != end):
                raise WireError("record", f"{end - pos} bytes behind its headers", offset=pos)
            if not 0 <= delta <= last:
                raise _outside(header, delta)
            yield Record(
                base + delta, time + timestamp_delta if stamp is None else stamp, key, value, headers
            )
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})") from broken


def _headers(
    body: bytes, pos: int, end: int, budget: HeaderBudget
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = _signed(body, pos, _VARINT_BYTES)
    if not count:
        return (), pos
    _headers_bounded(pos, end, count, budget)
    headers = []
    for _ in range(count):
        name, pos = _nullable_bytes(body, pos, end)
        if name is None:
            raise WireError("record", "a header without a name", offset=pos)
        value, pos = _nullable_bytes(body, pos, end)
        headers.append((name.decode(), value))
    return tuple(headers), pos


def _nullable_bytes(body: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _signed(body, pos, _VARINT_BYTES)
    if size == -1:
        return None, pos
    if not 0 <= size <= end - pos:
        raise _misfit(size, pos, end)
    return body[pos : pos + size], pos + size


def _signed(data: bytes, pos: int, shifts: range) -> tuple[int, int]:
    """A zigzag varint of at most as many bytes as there are shifts. Unrolled: most have one byte or two."""
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


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """A batch as a producer sends it; the records' own offsets do not count, they are numbered from 0."""
    first = records[0].timestamp if records else TIMESTAMP_NONE
    newest = max((record.timestamp for record in records), default=TIMESTAMP_NONE)
    flags = codec | transactional * TRANSACTIONAL | control * CONTROL
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=flags | (log_append_time_ms is not None) * LOG_APPEND_TIME,
        last_offset_delta=len(records) - 1,
        base_timestamp=first,
        max_timestamp=newest if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return bytes(pack_batch(header, compress(codec, _encode_records(records, first))))


def _encode_records(records: Iterable[Record], first_timestamp: int) -> bytes:
    out = bytearray()
    for delta, record in enumerate(records):
        append_record(out, record, timestamp_delta=record.timestamp - first_timestamp, offset_delta=delta)
    return bytes(out)


def append_record(out: bytearray, record: Record, *, timestamp_delta: int, offset_delta: int) -> None:
    """One record as a batch's body holds it; its own offset and timestamp do not count."""
    data = bytearray(b"\x00")
    data += signed_varint(timestamp_delta) + signed_varint(offset_delta)
    _append_nullable(data, record.key)
    _append_nullable(data, record.value)
    data += signed_varint(len(record.headers))
    for name, value in record.headers:
        _append_nullable(data, name.encode())
        _append_nullable(data, value)
    out += signed_varint(len(data)) + data


def _append_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\x01"
    else:
        out += signed_varint(len(value)) + value


def signed_varint(value: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    number = value << 1 ^ value >> 63
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)

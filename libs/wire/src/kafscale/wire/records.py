"""Record batches from the inside: records read one by one, and batches made of records.

Brokers rarely need this: only timestamps inside a batch, keys of compacted topics, and tools open a batch.
Reading is bounded by the batch's own count and by a limit on decompressed bytes; any varint, length or count
that does not fit is a WireError. What a record's headers hold can be a hundred times as large in memory as on the
wire: a caller that does not need them leaves them closed. What concerns whole batches is in `batches` and offered
here too.
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
    "HEADER_SIZE",
    "MAGIC",
    "BatchHeader",
    "Codec",
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


def records_in(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    headers: bool = True,
) -> Iterator[Record]:
    """The records of one batch, in order; with the log's time where the batch says so. Without `headers` they are
    left closed, and every record has none."""
    header = header or read_batch_header(batch)
    return _records(header, _body(header, batch, bytes_max), headers)


def places_in(batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record in order. Keys, values and headers stay closed: whatever a record holds,
    a step costs the same."""
    header = read_batch_header(batch)
    body = _body(header, batch, bytes_max)
    stamp = header.max_timestamp if header.is_log_append_time else None
    try:
        for start, end in _frames(header, body):
            timestamp_delta, pos = _signed(body, start + 1, _VARLONG_BYTES)
            offset_delta, pos = _signed(body, pos, _VARINT_BYTES)
            if pos > end or not 0 <= offset_delta <= header.last_offset_delta:
                raise WireError("record", f"offset delta {offset_delta} in {end - start} bytes", offset=start)
            timestamp = header.base_timestamp + timestamp_delta if stamp is None else stamp
            yield header.base_offset + offset_delta, timestamp
    except IndexError as broken:
        raise WireError("record", f"cut short ({broken})") from broken


def _body(header: BatchHeader, batch: Buffer, bytes_max: int) -> bytes:
    try:
        codec = header.codec
    except ValueError as unknown:
        raise WireError(
            "record batch", str(unknown), code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ) from unknown
    body = decompress(codec, memoryview(batch)[HEADER_SIZE:], bytes_max=bytes_max)
    if not 0 <= header.records_count <= len(body):
        raise WireError("record batch", f"{header.records_count} records in {len(body)} bytes")
    return body


def _frames(header: BatchHeader, body: bytes) -> Iterator[tuple[int, int]]:
    """Where each record's bytes begin and end."""
    pos = 0
    for _ in range(header.records_count):
        size, pos = _signed(body, pos, _VARINT_BYTES)
        end = pos + size
        if size < 0 or end > len(body):
            raise WireError("record", f"{size} bytes long", offset=pos)
        yield pos, end
        pos = end
    if pos != len(body):
        raise WireError("record batch", f"{len(body) - pos} bytes behind the last record", offset=pos)


def keyless_in(body: bytes, header: BatchHeader) -> Iterator[list[int]]:
    """The places of the records without a key in a batch's (decompressed) body, in portions.

    For a caller that must not be stopped for long by a large batch: each portion is a fraction of a millisecond's work,
    and no record is made. Offsets that do not follow one another are INVALID_RECORD; what is misshaped is a WireError.
    """
    keyless: list[int] = []
    pos, portion_end = 0, PORTION
    try:
        for index in range(header.records_count):
            size, pos = _signed(body, pos, _VARINT_BYTES)
            end = pos + size
            if size < 0 or end > len(body):
                raise WireError("record", f"{size} bytes long", offset=pos)
            has_key, pos = _past_key(body, pos, end, index)
            if not has_key:
                keyless.append(index)
            pos = _past_nullable(body, pos, end)
            headers, pos = _signed(body, pos, _VARINT_BYTES)
            if headers:
                pos = yield from _past_headers(body, pos, end, headers)
            if pos != end:
                raise WireError("record", f"{end - pos} bytes behind its headers", offset=pos)
            if index == portion_end:
                yield keyless
                keyless, portion_end = [], index + PORTION
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})", offset=pos) from broken
    if pos != len(body):
        raise WireError("record batch", f"{len(body) - pos} bytes behind the last record", offset=pos)
    yield keyless


def _past_key(body: bytes, pos: int, end: int, index: int) -> tuple[bool, int]:
    """Whether a record has a key, and the position behind it."""
    _, pos = _signed(body, pos + 1, _VARLONG_BYTES)
    delta, pos = _signed(body, pos, _VARINT_BYTES)
    if delta != index:
        reason = f"has offset {delta} in its batch, and not {index}"
        raise WireError("record", reason, offset=pos, code=ErrorCode.INVALID_RECORD)
    size, pos = _signed(body, pos, _VARINT_BYTES)
    if size == -1:
        return False, pos
    if not 0 <= size <= end - pos:
        raise WireError("record", f"{size} bytes in {end - pos}", offset=pos)
    return True, pos + size


def _past_nullable(body: bytes, pos: int, end: int) -> int:
    size, pos = _signed(body, pos, _VARINT_BYTES)
    if not -1 <= size <= end - pos:
        raise WireError("record", f"{size} bytes in {end - pos}", offset=pos)
    return pos + max(size, 0)


def _past_headers(body: bytes, pos: int, end: int, count: int) -> Generator[list[int], None, int]:
    """The position behind a record's headers; portions are empty. Their names must be text."""
    if not 0 <= count <= (end - pos) // 2:
        raise WireError("record", f"{count} headers", offset=pos)
    for number in range(1, count + 1):
        start = pos
        size, pos = _signed(body, pos, _VARINT_BYTES)
        if not 0 <= size <= end - pos:
            raise WireError("record", f"a header's name of {size} bytes in {end - pos}", offset=start)
        text = getincrementaldecoder("utf-8")() if size > _NAME_PORTION_BYTES else None
        for at in range(pos, pos + size, _NAME_PORTION_BYTES):
            part = body[at : min(at + _NAME_PORTION_BYTES, pos + size)]
            if text is None:
                part.decode()
            else:
                text.decode(part, final=at + len(part) == pos + size)
                yield []
        pos = _past_nullable(body, pos + size, end)
        if number % PORTION == 0:
            yield []
    return pos


def _records(header: BatchHeader, body: bytes, with_headers: bool) -> Iterator[Record]:
    stamp = header.max_timestamp if header.is_log_append_time else None
    try:
        for start, end in _frames(header, body):
            yield _record(header, body[start:end], stamp, with_headers)
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})") from broken


def _record(header: BatchHeader, data: bytes, stamp: int | None, with_headers: bool) -> Record:
    pos = 1  # the attributes of a record are unused
    timestamp_delta, pos = _signed(data, pos, _VARLONG_BYTES)
    offset_delta, pos = _signed(data, pos, _VARINT_BYTES)
    key, pos = _nullable_bytes(data, pos)
    value, pos = _nullable_bytes(data, pos)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if not with_headers:
        pos = len(data)
    elif data[pos] == 0:
        pos += 1
    else:
        headers, pos = _headers(data, pos)
    if pos != len(data):
        raise WireError("record", f"{len(data) - pos} bytes behind its headers", offset=pos)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise WireError("record", f"offset delta {offset_delta} of {header.last_offset_delta}")
    timestamp = header.base_timestamp + timestamp_delta if stamp is None else stamp
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _headers(data: bytes, pos: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = _signed(data, pos, _VARINT_BYTES)
    if not 0 <= count <= (len(data) - pos) // 2:
        raise WireError("record", f"{count} headers", offset=pos)
    headers = []
    for _ in range(count):
        name, pos = _nullable_bytes(data, pos)
        if name is None:
            raise WireError("record", "a header without a name", offset=pos)
        value, pos = _nullable_bytes(data, pos)
        headers.append((name.decode(), value))
    return tuple(headers), pos


def _nullable_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = _signed(data, pos, _VARINT_BYTES)
    if size == -1:
        return None, pos
    if not 0 <= size <= len(data) - pos:
        raise WireError("record", f"{size} bytes in {len(data) - pos}", offset=pos)
    return data[pos : pos + size], pos + size


def _signed(data: bytes, pos: int, shifts: range) -> tuple[int, int]:
    """A zigzag varint of at most as many bytes as there are shifts."""
    byte = data[pos]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), pos + 1
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

"""Record batches from the inside: records read one by one, and batches made of records.

Brokers rarely need this: only timestamps inside a batch, keys of compacted topics, and tools open a batch.
Reading is bounded by the batch's own count and by a limit on decompressed bytes; any varint, length or count
that does not fit is a WireError. What concerns whole batches is in `batches` and offered here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    "patch_batch",
    "placed_batch",
    "read_batch_header",
    "records_in",
    "signed_varint",
    "split_batches",
    "stamp_log_append_time",
    "validate_batch",
]

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
    batch: Buffer, header: BatchHeader | None = None, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of one batch, in order; with the log's time where the batch says so."""
    header = header or read_batch_header(batch)
    try:
        codec = header.codec
    except ValueError as unknown:
        raise WireError(
            "record batch", str(unknown), code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ) from unknown
    body = decompress(codec, memoryview(batch)[HEADER_SIZE:], bytes_max=bytes_max)
    if not 0 <= header.records_count <= len(body):
        raise WireError("record batch", f"{header.records_count} records in {len(body)} bytes")
    return _records(header, body)


def _records(header: BatchHeader, body: bytes) -> Iterator[Record]:
    stamp = header.max_timestamp if header.is_log_append_time else None
    pos = 0
    try:
        for _ in range(header.records_count):
            size, pos = _signed(body, pos, _VARINT_BYTES)
            end = pos + size
            if size < 0 or end > len(body):
                raise WireError("record", f"{size} bytes long", offset=pos)
            yield _record(header, body[pos:end], stamp)
            pos = end
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})", offset=pos) from broken
    if pos != len(body):
        raise WireError("record batch", f"{len(body) - pos} bytes behind the last record", offset=pos)


def _record(header: BatchHeader, data: bytes, stamp: int | None) -> Record:
    pos = 1  # the attributes of a record are unused
    timestamp_delta, pos = _signed(data, pos, _VARLONG_BYTES)
    offset_delta, pos = _signed(data, pos, _VARINT_BYTES)
    key, pos = _nullable_bytes(data, pos)
    value, pos = _nullable_bytes(data, pos)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if data[pos] == 0:
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

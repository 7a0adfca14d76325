"""The records of batches: reads records one by one, and builds batches of records.

Brokers rarely need this: they open a batch only for timestamps, for keys of compacted topics, and in tools. The walk
over a batch's records, with its bounds, is in `record_walk`. Header objects can take a hundred times the memory of
their bytes on the wire, so their number has a limit, and a caller that does not need them leaves them closed. This
module also exports the functions of `batches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from kafscale.wire.errors import WireError
from kafscale.wire.record_walk import (
    HEADERS_MAX,
    VARINT_BYTES,
    HeaderBudget,
    body_of,
    headers_bounded,
    misfit,
    outside,
    signed,
    walk,
)

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
    headers_max: int = HEADERS_MAX,
) -> Iterator[Record]:
    """The records of one batch, in order; with the log's time where the batch says so. At most `headers_max` headers
    are made of all of them. Without `headers` they are left closed, and every record has none."""
    header = header or read_batch_header(batch)
    body = body_of(header, batch, bytes_max)
    return _records(header, body, HeaderBudget(headers_max) if headers else None)


def _records(header: BatchHeader, body: bytes, budget: HeaderBudget | None) -> Iterator[Record]:
    """Yields the records. Without a budget the headers stay closed."""
    base, last, time = header.base_offset, header.last_offset_delta, header.base_timestamp
    stamp = header.max_timestamp if header.is_log_append_time else None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    try:
        for timestamp_delta, delta, pos, end in walk(header, body):
            key, pos = _nullable_bytes(body, pos, end)
            value, pos = _nullable_bytes(body, pos, end)
            if budget is not None:
                headers, pos = _headers(body, pos, end, budget)
            if pos > end or (budget is not None and pos != end):
                raise WireError("record", f"{end - pos} bytes behind its headers", offset=pos)
            if not 0 <= delta <= last:
                raise outside(header, delta)
            yield Record(
                base + delta, time + timestamp_delta if stamp is None else stamp, key, value, headers
            )
    except (IndexError, UnicodeDecodeError) as broken:
        raise WireError("record", f"cut short or not text ({broken})") from broken


def _headers(
    body: bytes, pos: int, end: int, budget: HeaderBudget
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = signed(body, pos, VARINT_BYTES)
    if not count:
        return (), pos
    headers_bounded(pos, end, count, budget)
    headers = []
    for _ in range(count):
        name, pos = _nullable_bytes(body, pos, end)
        if name is None:
            raise WireError("record", "a header without a name", offset=pos)
        value, pos = _nullable_bytes(body, pos, end)
        headers.append((name.decode(), value))
    return tuple(headers), pos


def _nullable_bytes(body: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = signed(body, pos, VARINT_BYTES)
    if size == -1:
        return None, pos
    if not 0 <= size <= end - pos:
        raise misfit(size, pos, end)
    return body[pos : pos + size], pos + size


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
    """A batch as a producer sends it: offsets begin at 0, and the offsets in `records` are ignored."""
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
    """Encodes one record for a batch's body; the record's offset and timestamp are ignored."""
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

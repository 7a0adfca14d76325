"""Message sets (magic 0 and 1): how clients older than Kafka 0.11 write records; to batches, and back.

A set is messages end to end: offset, size, CRC-32 of all that follows it, magic, attributes, in magic 1 a
timestamp (KIP-32), key, value. A compressed set is one message, the wrapper, whose value is a set: its offset is
that of the last message in it; its messages have the log's offsets in magic 0, and offsets from 0 on in magic 1
(KIP-31). Wrappers do not nest. An invalid set is a WireError with the code of Kafka's log.
To a batch: each wrapper becomes one batch of its codec, each run of plain messages one uncompressed batch; magic 0
has no time, so its records get -1. To a message set: headers, producers and sequences have no place in it and are
left out, and so are whole control batches (KIP-98). Batches of zstd cannot be converted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final
from zlib import crc32

from kafscale.wire.batches import (
    CODEC_MASK,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    MAGIC,
    RECORDS_MAX,
    TIMESTAMP_NONE,
    BatchHeader,
    each_batch,
    pack_batch,
)
from kafscale.wire.buffers import Buffer, Steps
from kafscale.wire.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    compress,
    compressing,
    decompress,
    lz4_header_checksum,
)
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import Record, append_record, records_in

STEP_RECORDS: Final = 200
"""Records opened between two steps: about a millisecond."""
TIMESTAMP_MAX: Final = (1 << 63) - 2
"""Kept below the end of the range, so that a difference to -1 still fits."""

_HEAD = Struct(">qiIBB")  # offset, size; under the size: CRC, magic, attributes
_CRC_END: Final = 16
_MAGIC_AT: Final = 16
_LONG = Struct(">q")
_LENGTH = Struct(">i")
_FIELDS = {0: Struct(">BB"), 1: Struct(">BBq")}
_SIZE_MIN: Final = {0: 14, 1: 22}

Message = tuple[int, Record]
"""The attributes and the fields of a message; the value of a wrapper is its set."""


def is_message_set(record_set: Buffer) -> bool:
    """Whether the first magic byte is that of a message; its position is the same as in a batch."""
    return len(record_set) > _MAGIC_AT and record_set[_MAGIC_AT] < MAGIC


def messages_in(message_set: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The messages of a set with wrappers opened; offsets and times are the log's."""
    data = bytes(message_set)
    magic = _magic_of(data)
    left = bytes_max
    for attributes, outer in _messages(data, magic):
        if not attributes & CODEC_MASK:
            yield outer
            continue
        inside = _opened(attributes, outer, magic, left)
        left -= len(inside)
        stamp = outer.timestamp if magic and attributes & LOG_APPEND_TIME else None
        shift = _shift(inside, outer.offset) if magic else 0
        for record in _inner(inside, magic):
            timestamp = record.timestamp if stamp is None else stamp
            yield Record(record.offset + shift, timestamp, record.key, record.value)


def batches_of(message_set: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What a producer sent as a message set, as batches, each numbered from 0 as a producer's batch is.

    The order of messages is kept, their offsets are not looked at. At most `bytes_max` come
    out of all wrappers together, and at most RECORDS_MAX messages: MESSAGE_TOO_LARGE beyond.
    """
    data = bytes(message_set)
    magic = _magic_of(data)
    batches = _Batches()
    left = bytes_max
    for attributes, outer in _messages(data, magic):
        if magic and attributes & LOG_APPEND_TIME:
            raise _wrong("a producer's message has the log's time", ErrorCode.INVALID_TIMESTAMP)
        if not attributes & CODEC_MASK:
            batches.add(outer)
            continue
        inside = _opened(attributes, outer, magic, left)
        left -= len(inside)
        batches.end(Codec.NONE)
        for record in _inner(inside, magic):
            batches.add(record)
        batches.end(Codec(attributes & CODEC_MASK))
    batches.end(Codec.NONE)
    return bytes(batches.out)


def message_sets_of(
    record_sets: Iterable[Buffer],
    magic: int,
    *,
    from_offset: int,
    bytes_max: int,
    opened_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    records_max: int = RECORDS_MAX,
) -> Steps[list[bytes]]:
    """Stored batches as message sets of `magic`, one for each batch that has something to say; worked out in steps, as
    each record is opened.

    The first is always there; then as many as fit into `bytes_max`. Plain messages below `from_offset` are left out, a
    compressed batch is converted as a whole, as in Kafka. No more than `opened_bytes_max` come out of a batch and no
    more than `records_max` records are opened: MESSAGE_TOO_LARGE. A WireError is about the first batch; a later one
    ends the answer.
    """
    out: list[bytes] = []
    size = 0
    for record_set in record_sets:
        for header, batch in each_batch(record_set):
            records_max -= header.records_count
            try:
                if records_max < 0:
                    raise _wrong(f"{header.records_count} records", ErrorCode.MESSAGE_TOO_LARGE)
                converted = yield from _message_set(header, batch, magic, from_offset, opened_bytes_max)
            except WireError:
                if not out:
                    raise
                return out
            if out and size + len(converted) > bytes_max:
                return out
            if converted:
                out.append(converted)
                size += len(converted)
            yield
    return out


# --- reading -----------------------------------------------------------------------------------------


def _wrong(reason: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE, *, offset: int = -1) -> WireError:
    return WireError("message set", reason, offset=offset, code=code)


def _magic_of(data: bytes) -> int:
    if len(data) <= _MAGIC_AT:
        raise _wrong(f"{len(data)} bytes hold no message")
    if data[_MAGIC_AT] >= MAGIC:
        raise _wrong(f"magic {data[_MAGIC_AT]}", ErrorCode.INVALID_RECORD)
    return data[_MAGIC_AT]


def _messages(data: bytes, magic: int) -> Iterator[Message]:
    """Yields message by message; each has this magic, is complete, and has a correct checksum."""
    end = len(data)
    pos = 0
    while pos < end:
        if end - pos < _HEAD.size:
            raise _wrong("ends inside a message", offset=pos)
        offset, size, checksum, found, attributes = _HEAD.unpack_from(data, pos)
        stop = pos + LENGTH_OFFSET + size
        if found != magic:
            raise _wrong(f"magic {found} behind {magic}", ErrorCode.INVALID_RECORD, offset=pos)
        if size < _SIZE_MIN[magic] or stop > end:
            raise _wrong(f"a message of {size} bytes in {end - pos}", offset=pos)
        if crc32(data[pos + _CRC_END : stop]) != checksum:
            raise _wrong("a message's checksum", offset=pos)
        at = pos + _HEAD.size
        timestamp = TIMESTAMP_NONE
        if magic:
            (timestamp,) = _LONG.unpack_from(data, at)
            at += _LONG.size
        key, at = _nullable(data, at, stop)
        value, at = _nullable(data, at, stop)
        if at != stop:
            raise _wrong(f"{stop - at} bytes behind a message's value", offset=at)
        yield attributes, Record(offset, timestamp, key, value)
        pos = stop


def _nullable(data: bytes, pos: int, stop: int) -> tuple[bytes | None, int]:
    if stop - pos < _LENGTH.size:
        raise _wrong("a message ends inside a length", offset=pos)
    (size,) = _LENGTH.unpack_from(data, pos)
    pos += _LENGTH.size
    if size == -1:
        return None, pos
    if not 0 <= size <= stop - pos:
        raise _wrong(f"{size} bytes in {stop - pos}", offset=pos)
    return data[pos : pos + size], pos + size


def _opened(attributes: int, wrapper: Record, magic: int, bytes_max: int) -> bytes:
    """The set inside a wrapper, decompressed."""
    number = attributes & CODEC_MASK
    if number > Codec.LZ4:
        raise _wrong(f"codec {number} in magic {magic}", ErrorCode.INVALID_RECORD)
    if wrapper.value is None:
        raise _wrong("a wrapper without a value", ErrorCode.INVALID_RECORD)
    packed = wrapper.value
    if number == Codec.LZ4 and magic == 0:
        packed = lz4_header_checksum(packed, broken=False)
    inside = decompress(Codec(number), packed, bytes_max=bytes_max)
    if not inside:
        raise _wrong("a wrapper around nothing", ErrorCode.INVALID_RECORD)
    return inside


def _inner(inside: bytes, magic: int) -> Iterator[Record]:
    for attributes, record in _messages(inside, magic):
        if attributes & CODEC_MASK:
            raise _wrong("a wrapper inside a wrapper", ErrorCode.INVALID_RECORD)
        yield record


def _shift(inside: bytes, last_offset: int) -> int:
    """The number to add to inner offsets of magic 1. Some versions of librdkafka leave the wrapper's offset at 0."""
    if not last_offset:
        return 0
    last = 0
    for record in _inner(inside, 1):
        last = record.offset
    return last_offset - last


class _Batches:
    """Batches as they grow, one record at a time."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._messages = 0
        self._body = bytearray()
        self._count = 0
        self._first = TIMESTAMP_NONE
        self._newest = TIMESTAMP_NONE

    def add(self, record: Record) -> None:
        timestamp = record.timestamp
        if not TIMESTAMP_NONE <= timestamp <= TIMESTAMP_MAX:
            raise _wrong(f"timestamp {timestamp}", ErrorCode.INVALID_TIMESTAMP)
        self._messages += 1
        if self._messages > RECORDS_MAX:
            raise _wrong(f"more than {RECORDS_MAX} messages", ErrorCode.MESSAGE_TOO_LARGE)
        if not self._count:
            self._first = self._newest = timestamp
        append_record(self._body, record, timestamp_delta=timestamp - self._first, offset_delta=self._count)
        self._count += 1
        self._newest = max(self._newest, timestamp)

    def end(self, codec: Codec) -> None:
        """Ends a batch, if records were added since the last end."""
        if not self._count:
            return
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(codec),
            last_offset_delta=self._count - 1,
            base_timestamp=self._first,
            max_timestamp=self._newest,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            records_count=self._count,
        )
        self.out += pack_batch(header, compress(codec, bytes(self._body)))
        self._body = bytearray()
        self._count = 0


# --- writing -----------------------------------------------------------------------------------------


def _message_set(
    header: BatchHeader, batch: Buffer, magic: int, from_offset: int, opened_bytes_max: int
) -> Steps[bytes]:
    """One batch as a message set: plain messages, or one wrapper. Empty if no record of it can be converted."""
    if header.is_control:
        return b""
    number = header.attributes & CODEC_MASK
    if number > Codec.LZ4:
        raise _wrong(f"codec {number} in magic {magic}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    flags = LOG_APPEND_TIME if magic and header.is_log_append_time else 0
    records = records_in(batch, header, bytes_max=opened_bytes_max, headers=False)
    try:
        if not number:
            return (yield from _plain(records, magic, flags, from_offset))
        return (yield from _wrapped(header, records, magic, flags))
    except struct.error as unfit:
        raise _wrong(f"a record's offset or time ({unfit})") from unfit


def _plain(records: Iterator[Record], magic: int, flags: int, from_offset: int) -> Steps[bytes]:
    out = bytearray()
    for count, record in enumerate(records, 1):
        if record.offset >= from_offset:
            _append_message(out, record, magic, flags)
        if not count % STEP_RECORDS:
            yield
    return bytes(out)


def _wrapped(header: BatchHeader, records: Iterator[Record], magic: int, flags: int) -> Steps[bytes]:
    inside = bytearray()
    first = last = -1
    for count, record in enumerate(records, 1):
        last = record.offset
        if first < 0:
            first = last
        offset = last - first if magic else last
        _append_message(inside, Record(offset, record.timestamp, record.key, record.value), magic, flags)
        if not count % STEP_RECORDS:
            yield
    if not inside:
        return b""
    packed = yield from compressing(header.codec, inside)
    if magic == 0 and header.codec is Codec.LZ4:
        packed = lz4_header_checksum(packed, broken=True)
    out = bytearray()
    _append_message(out, Record(last, header.max_timestamp, None, packed), magic, flags | header.codec)
    return bytes(out)


def _append_message(out: bytearray, record: Record, magic: int, attributes: int) -> None:
    times = (record.timestamp,) if magic else ()
    rest = bytearray(_FIELDS[magic].pack(magic, attributes, *times))
    for field in (record.key, record.value):
        if field is None:
            rest += b"\xff\xff\xff\xff"
        else:
            rest += _LENGTH.pack(len(field)) + field
    out += struct.pack(">qiI", record.offset, len(rest) + 4, crc32(rest)) + rest

"""Record batches (magic 2) without their records: 61 bytes of header, and a CRC over the rest.

The CRC covers everything from `attributes` to the end. The three fields that a broker writes precede it: base offset,
batch length and leader epoch. So a batch is placed in a log without touching its records. A client's mistake is an
ErrorCode, the same as in Kafka's log where Kafka has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec
from awscrt.checksums import crc32c as _crc32c  # type: ignore[import-untyped]
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import Codec
from kafscale.wire.errors import ErrorCode, WireError

HEADER_SIZE: Final = 61
MAGIC: Final = 2
LENGTH_OFFSET: Final = 12
_MAGIC_OFFSET: Final = 16
_CRC_OFFSET: Final = 17
_CRC_START: Final = 21
_MAX_TIMESTAMP_OFFSET: Final = 35
RECORD_BYTES_MIN: Final = 7
RECORDS_MAX: Final = 1_000_000
"""Limit of one batch from a client; librdkafka's limit for a producer. The header's count is checked only when the
batch is opened. Without a bound, a few kilobytes could claim ten million records, which are then read one by one."""
TIMESTAMP_NONE: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_CODEC_MAX = int(max(Codec))
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">qi")
_PLACE = Struct(">qii")
_BASE_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")


def crc32c(data: Buffer, previous: int = 0) -> int:
    """The CRC-32C of `data`, continued from `previous`; for batches and segments.

    awscrt uses the CPU's instruction (21 GB/s) and accepts any contiguous buffer without a copy.
    """
    return int(_crc32c(data, previous))


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header's fields in their order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes."""
        return LENGTH_OFFSET + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """The codec. Raises ValueError for the three unused numbers."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


def read_batch_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Decodes the 61 bytes at `pos`, and checks only their number."""
    if len(buf) - pos < HEADER_SIZE:
        raise WireError("record batch", "shorter than its header", offset=pos)
    return BatchHeader(*_HEADER.unpack_from(buf, pos))


def split_batches(record_set: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Splits a record set into batches, each exactly as long as its header says; none for an empty set.

    A WireError carries the code to answer: INVALID_RECORD for the message sets of magic 0 and 1,
    CORRUPT_MESSAGE for a length that does not fit the available bytes.
    """
    return list(each_batch(record_set))


def each_batch(record_set: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """As `split_batches`, batch by batch."""
    view = memoryview(record_set)
    end = len(view)
    pos = 0
    while pos < end:
        if end - pos <= _MAGIC_OFFSET:
            raise WireError("record set", "ends inside a batch's header", offset=pos)
        magic = view[pos + _MAGIC_OFFSET]
        if magic < MAGIC:
            raise WireError("record set", f"magic {magic}", offset=pos, code=ErrorCode.INVALID_RECORD)
        if magic > MAGIC:
            raise WireError("record set", f"magic {magic}", offset=pos)
        header = read_batch_header(view, pos)
        size = LENGTH_OFFSET + header.batch_length
        if not HEADER_SIZE <= size <= end - pos:
            raise WireError("record set", f"a batch of {size} bytes in {end - pos}", offset=pos)
        yield header, view[pos : pos + size]
        pos += size


def validate_batch(header: BatchHeader, batch: Buffer, *, transactions: bool = False) -> ErrorCode:
    """Checks header and CRC of a batch from a client; NONE if both are correct.

    Without `transactions` a transactional batch is INVALID_REQUEST: a server without transactions must never store it.
    """
    if header.magic != MAGIC:
        return ErrorCode.INVALID_RECORD if header.magic in (0, 1) else ErrorCode.CORRUPT_MESSAGE
    size = len(batch)
    if LENGTH_OFFSET + header.batch_length != size or size < HEADER_SIZE or not has_valid_crc(header, batch):
        return ErrorCode.CORRUPT_MESSAGE
    if not 0 <= header.attributes <= _CODEC_MAX:  # else the codec is known and no flag is set
        error = _attributes_error(header, transactions)
        if error:
            return error
    return _numbers_error(header)


def has_valid_crc(header: BatchHeader, batch: Buffer) -> bool:
    """Whether the CRC is correct; for stored batches too."""
    return crc32c(memoryview(batch)[_CRC_START:]) == header.crc


def _attributes_error(header: BatchHeader, transactions: bool) -> ErrorCode:
    if header.attributes & CODEC_MASK > _CODEC_MAX:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.attributes & (CONTROL | DELETE_HORIZON):
        return ErrorCode.INVALID_RECORD
    if header.is_log_append_time:
        return ErrorCode.INVALID_TIMESTAMP
    if header.is_transactional and not transactions:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _numbers_error(header: BatchHeader) -> ErrorCode:
    count = header.records_count
    if header.base_offset != 0 or not 0 < count <= RECORDS_MAX or count != header.last_offset_delta + 1:
        return ErrorCode.INVALID_RECORD
    records_bytes = LENGTH_OFFSET + header.batch_length - HEADER_SIZE
    if not header.attributes & CODEC_MASK and count * RECORD_BYTES_MIN > records_bytes:
        return ErrorCode.INVALID_RECORD
    return _producer_error(header)


def _producer_error(header: BatchHeader) -> ErrorCode:
    if header.producer_id < 0:
        wrong = header.producer_id != -1 or header.is_transactional
    else:
        wrong = header.producer_epoch < 0 or header.base_sequence < 0
    return ErrorCode.INVALID_RECORD if wrong else ErrorCode.NONE


def patch_batch(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Places a batch in its log; both fields are outside the CRC."""
    _BASE_OFFSET.pack_into(buf, 0, base_offset)
    _EPOCH.pack_into(buf, LENGTH_OFFSET, leader_epoch)


def placed_batch(
    header: BatchHeader, batch: memoryview, base_offset: int, leader_epoch: int
) -> tuple[bytes, memoryview]:
    """The same for read-only bytes: 16 new bytes, and the rest by reference."""
    return _PLACE.pack(base_offset, header.batch_length, leader_epoch), batch[_MAGIC_OFFSET:]


def stamp_log_append_time(buf: bytearray | memoryview, timestamp_ms: int) -> None:
    """Sets the log append time of a batch and computes its CRC again. The records stay closed."""
    view = memoryview(buf)
    (attributes,) = _ATTRIBUTES.unpack_from(view, _CRC_START)
    _ATTRIBUTES.pack_into(view, _CRC_START, attributes | LOG_APPEND_TIME)
    _BASE_OFFSET.pack_into(view, _MAX_TIMESTAMP_OFFSET, timestamp_ms)
    _CRC.pack_into(view, _CRC_OFFSET, crc32c(view[_CRC_START:]))


def empty_batch(base: int, last: int, leader_epoch: int) -> bytes:
    """A batch without records that covers the offsets from `base` to `last`, as compaction leaves them."""
    header = BatchHeader(
        base_offset=base,
        batch_length=HEADER_SIZE - LENGTH_OFFSET,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=last - base,
        base_timestamp=TIMESTAMP_NONE,
        max_timestamp=TIMESTAMP_NONE,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    return bytes(pack_batch(header, b""))


def pack_batch(header: BatchHeader, body: Buffer) -> bytearray:
    """A batch from its header's fields and its (already compressed) records. Computes length and CRC."""
    fields = msgspec.structs.astuple(header)
    out = bytearray(HEADER_SIZE) + body
    _HEADER.pack_into(out, 0, fields[0], len(out) - LENGTH_OFFSET, *fields[2:4], 0, *fields[5:])
    _CRC.pack_into(out, _CRC_OFFSET, crc32c(memoryview(out)[_CRC_START:]))
    return out

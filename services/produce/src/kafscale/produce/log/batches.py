"""What a client may append: the checks on a record set, and the header a batch is stored with.

Records stay opaque: everything here reads the 61-byte header and the checksum; `contents` opens batches
where the topic wants it. A client's mistake is a value, `Rejection`; nothing raises.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import NamedTuple

from kafscale.produce.log.model import Limits, RecordFault
from kafscale.wire.batches import crc32c, each_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    patch_batch,
    validate_batch,
)

NO_PRODUCER = -1
BATCHES_MAX = 1_000
"""Of one record set: ten milliseconds' work on the event loop. Kafka takes one, but of clients older than 0.11 several,
and half a million fit into a request."""
_LOG_APPEND_TIME = 0x08
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

Batches = list[tuple[BatchHeader, memoryview]]


class Rejection(NamedTuple):
    """Why a record set is not appended; nothing of it is."""

    error: ErrorCode
    message: str | None = None
    faults: tuple[RecordFault, ...] = ()


def check_record_set(
    record_set: memoryview | None, limits: Limits, *, zstd_allowed: bool
) -> Batches | Rejection:
    """The batches of a record set, or the first thing wrong with it. All or nothing."""
    if record_set is None or not len(record_set):
        return Rejection(ErrorCode.INVALID_RECORD, "A partition's data must hold a record batch.")
    try:
        batches = list(islice(each_batch(record_set), BATCHES_MAX + 1))
    except WireError as error:
        return Rejection(error.code, str(error))
    if len(batches) > BATCHES_MAX:
        return Rejection(ErrorCode.MESSAGE_TOO_LARGE, f"A partition's data has over {BATCHES_MAX} batches.")
    for header, batch in batches:
        if len(batch) > limits.max_message_bytes:
            too_large = (
                f"A batch of {len(batch)} bytes is over max.message.bytes, {limits.max_message_bytes}."
            )
            return Rejection(ErrorCode.MESSAGE_TOO_LARGE, too_large)
        error_code = validate_batch(header, batch)
        if error_code:
            return Rejection(error_code)
        if not zstd_allowed and header.codec is Codec.ZSTD:
            return Rejection(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later.")
    if len(batches) > 1:
        reason = _not_neighbours([header for header, _ in batches])
        if reason is not None:
            return Rejection(ErrorCode.INVALID_RECORD, reason)
    return batches


def _not_neighbours(headers: list[BatchHeader]) -> str | None:
    """Why these batches cannot stand in one record set: they are of one producer and in sequence."""
    first = headers[0]
    expected = first.base_sequence
    for header in headers:
        if (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch):
            return "A partition's data must be of one producer."
        if first.producer_id == NO_PRODUCER:
            continue
        if header.base_sequence != expected:
            return "The batches' sequences do not follow one another."
        expected = (expected + header.last_offset_delta + 1) & 0x7FFF_FFFF
    return None


def check_times(batches: Batches, earliest_ms: int | None, limits: Limits, wall_ms: int) -> Rejection | None:
    """Whether records are from too far in the future or in the past; the log's own time never is.

    Headers hold the latest time. `earliest_ms` was found inside; None: not looked for, or no record has a time.
    """
    if limits.log_append_time:
        return None
    latest_ms = max(header.max_timestamp for header, _ in batches)
    if latest_ms - wall_ms > limits.future_max_ms:
        wrong_ms = latest_ms
    elif earliest_ms is not None and wall_ms - earliest_ms > limits.past_max_ms:
        wrong_ms = earliest_ms
    else:
        return None
    reason = (
        f"The timestamp {wrong_ms} of a record is out of range: message.timestamp.before.max.ms is "
        f"{limits.past_max_ms}, message.timestamp.after.max.ms {limits.future_max_ms}, the time {wall_ms}."
    )
    return Rejection(ErrorCode.INVALID_TIMESTAMP, reason)


def stored_header(batch: memoryview, base_offset: int, leader_epoch: int) -> bytearray:
    """A private copy of the header with its place in the log; neither field is under the checksum."""
    header = bytearray(batch[:HEADER_SIZE])
    patch_batch(header, base_offset, leader_epoch)
    return header


def stamp_append_time(header: bytearray, records: memoryview, wall_ms: int) -> None:
    """LogAppendTime: every record takes the log's time, by one field of the header and a new checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(header, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(header, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(header, _MAX_TIMESTAMP_AT, wall_ms)
    checksum = crc32c(records, crc32c(memoryview(header)[_ATTRIBUTES_AT:]))
    _CRC.pack_into(header, _CRC_AT, checksum)

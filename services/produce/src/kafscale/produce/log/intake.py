"""From a client's record set to offsets: the checks, the open buffer, the rules of idempotence, the stored header.

Records stay opaque: everything here reads the 61-byte header and the checksum; `contents` opens batches where the topic
wants it. A client's mistake is a value, `Rejection`; nothing raises. Offsets are given once and in arrival order. The
batch's header is copied and patched; its records are referenced where they arrived.
"""

from __future__ import annotations

import struct
from itertools import islice

from kafscale.produce.log.contents import Contents, Opening, must_open, opened, too_many
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.model import (
    NO_TIMESTAMP,
    Batches,
    Instant,
    Limits,
    Rejection,
)
from kafscale.produce.log.producers import IN_FLIGHT_MAX, ProducerTable
from kafscale.produce.log.sequences import Repeat, sequence_after
from kafscale.storage.heads import Head
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
_CLOCK_BACK_MAX_MS = 3_600_000
_PRODUCER_FULL = Rejection(
    ErrorCode.NOT_ENOUGH_REPLICAS, f"This producer has {IN_FLIGHT_MAX} batches on their way already."
)
_FULL = Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "The partition's buffers are full.")


class Intake:
    """`open` is the buffer that takes the next batch; `producers` knows all up to its end."""

    def __init__(self, head: Head, producers: ProducerTable) -> None:
        self.open = OpenBuffer(head.next)
        self.producers = producers
        self.epoch = head.epoch
        self._newest_ms = head.max_ts  # of all that was sealed
        self._append_time_ms = 0  # the last one given

    def judge(
        self,
        record_set: memoryview | None,
        limits: Limits,
        held_bytes: int,
        zstd_allowed: bool,
        found: Contents | None,
        wall_ms: int,
    ) -> Batches | Repeat | Rejection:
        """What to do with a record set: assign these batches, answer it like its original, or refuse it."""
        if found is not None and found.rejection is not None:
            return found.rejection
        checked = self.judge_outside(record_set, limits, held_bytes, zstd_allowed)
        if not isinstance(checked, list):
            return checked
        if found is None and limits.opens_records and must_open(checked, limits):
            found = opened(Opening(checked, limits))
            if found.rejection is not None:
                return found.rejection
        untimely = check_times(checked, found and found.earliest_ms, limits, wall_ms)
        if untimely is not None:
            return untimely
        if found is not None and found.recompressed is not None:
            again = check_record_set(found.recompressed, limits, zstd_allowed=True)
            if isinstance(again, Rejection):
                return again
            checked = again
            if held_bytes + len(found.recompressed) > limits.held_bytes_max:
                return _FULL
        first = checked[0][0]
        if first.producer_id != NO_PRODUCER and not self.producers.make_room(first.producer_id):
            return Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "Too many new producers are on their way.")
        return checked

    def judge_outside(
        self, record_set: memoryview | None, limits: Limits, held_bytes: int, zstd_allowed: bool
    ) -> Batches | Repeat | Rejection:
        """The same as far as headers and bytes say it: all that is cheap comes before records are opened."""
        checked = check_record_set(record_set, limits, zstd_allowed=zstd_allowed)
        if isinstance(checked, Rejection):
            return checked
        assert record_set is not None
        first = checked[0][0]
        if first.producer_id != NO_PRODUCER:
            last = checked[-1][0]
            known = self.producers.judge(
                first.producer_id,
                first.producer_epoch,
                first.base_sequence,
                sequence_after(last.base_sequence, last.last_offset_delta),
            )
            if isinstance(known, Repeat):
                return known
            if known is not ErrorCode.NONE:
                return Rejection(known)
            if not self.producers.takes(first.producer_id, len(checked)):
                return _PRODUCER_FULL
        if held_bytes + len(record_set) > limits.held_bytes_max:
            return _FULL
        return (too_many(checked) or checked) if limits.looks_inside else checked

    def opens(
        self, record_set: memoryview | None, limits: Limits, held_bytes: int, zstd_allowed: bool
    ) -> Opening | None:
        """What is to be opened before this is appended. None: nothing, or it is decided without."""
        judged = self.judge_outside(record_set, limits, held_bytes, zstd_allowed)
        return Opening(judged, limits) if isinstance(judged, list) and must_open(judged, limits) else None

    def assign(self, batches: Batches, limits: Limits, now: Instant, committed: int) -> tuple[int, int]:
        """Give the batches the next offsets. The first offset, and the append time or -1."""
        buffer = self.open
        base = buffer.end
        append_time_ms = self._append_time(now) if limits.log_append_time else NO_TIMESTAMP
        for header, batch in batches:
            records = batch[HEADER_SIZE:]
            stored = stored_header(batch, buffer.end, self.epoch)
            min_ts, max_ts = header.base_timestamp, header.max_timestamp
            if append_time_ms != NO_TIMESTAMP:
                stamp_append_time(stored, records, append_time_ms)
                min_ts = max_ts = append_time_ms
            delta = header.last_offset_delta
            if header.producer_id != NO_PRODUCER:
                self.producers.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    sequence_after(header.base_sequence, delta),
                    buffer.end,
                    max_ts,
                    wall_ms=now.wall_ms,
                    committed=committed,
                )
            buffer.add(stored, records, count=delta + 1, min_ts=min_ts, max_ts=max_ts)
        return base, append_time_ms

    def _append_time(self, now: Instant) -> int:
        """The wall clock, but never back: a clock that jumps must not disorder the log's times.

        The log's newest time is followed within reason only: it may be a client's, from before the
        topic took the log's time.
        """
        latest_ms = now.wall_ms + _CLOCK_BACK_MAX_MS
        before = (self._append_time_ms, self._newest_ms, self.open.max_ts)
        self._append_time_ms = max([now.wall_ms, *(ms for ms in before if ms <= latest_ms)])
        return self._append_time_ms

    def replace_open(self) -> OpenBuffer:
        """The filled buffer; a new one goes on at its end."""
        filled = self.open
        self._newest_ms = max(self._newest_ms, filled.max_ts)
        self.open = OpenBuffer(filled.end)
        return filled


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

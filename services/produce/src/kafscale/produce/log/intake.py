"""From a client's record set to offsets: the checks, the open buffer, the rules of idempotence, the stored header.

Everything here reads the 61-byte header and the checksum; `contents` opens each batch, once. A client's mistake is a
value, `Rejection`; nothing raises. Offsets are given once and in arrival order. The batch's header is copied and
patched, with the largest timestamp of its records; the records are referenced where they arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice

from kafscale.log.heads import Head, OpenTransaction
from kafscale.log.transactions import End, Transactions
from kafscale.produce.log.contents import Contents, Opening, at_once, opened, too_large, too_many
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.joins import OPEN_MAX, Joins
from kafscale.produce.log.model import (
    NO_TIMESTAMP,
    Arrival,
    Batches,
    Checked,
    Instant,
    Limits,
    Rejection,
    TransactionEnd,
)
from kafscale.produce.log.producers import IN_FLIGHT_MAX, ProducerTable, Repeat, sequence_after
from kafscale.wire.batches import LOG_APPEND_TIME, crc32c, each_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.markers import Marker, end_marker
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
_OPEN_FULL = Rejection(
    ErrorCode.NOT_ENOUGH_REPLICAS, f"The partition has {OPEN_MAX} open transactions already."
)
_REASONS = {
    ErrorCode.CORRUPT_MESSAGE: "The batch does not have the length or the CRC that its header says",
    ErrorCode.INVALID_RECORD: "The batch's header is not one that a producer may send",
    ErrorCode.INVALID_TIMESTAMP: "A producer must not set the timestamp type LogAppendTime",
    ErrorCode.INVALID_REQUEST: "Transactions are not served yet",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The batch's compression type is unknown",
}
"""By the codes of `validate_batch`."""


class Intake:
    """`open` is the buffer that takes the next batch; the others know all up to its end."""

    def __init__(self, head: Head, producers: ProducerTable) -> None:
        self.open = OpenBuffer(head.next)
        self.producers = producers
        self.transactions = Transactions(head.open)
        self.joins = Joins(self.transactions)
        producers.hold(self.transactions)
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
        *,
        adds: bool = False,
    ) -> Sequence[Checked] | Repeat | Rejection:
        """What to do with a record set: assign these batches, answer it like its original, or refuse it.

        `found` is what came of `opens`. None: it is opened here and now. `adds`: the request is of TV2 (Produce 12 or
        later), so each transaction has an epoch of its own, and a batch of it that is not the first is a gap.
        """
        batches: Batches = []
        if found is None:
            checked = check_record_set(record_set, limits, zstd_allowed=zstd_allowed)
            if isinstance(checked, Rejection):
                return checked
            batches = checked
            first, last, count = batches[0][0], batches[-1][0], len(batches)
        elif found.rejection is not None:
            return found.rejection
        else:
            first, last, count = found.batches[0].header, found.batches[-1].header, len(found.batches)
        decided = self._judge_producer(first, last, count, adds=adds)
        if decided is not None:
            return decided
        room = limits.held_bytes_max - held_bytes - len(record_set or b"")
        if found is None and room >= 0:
            found = opened(batches, limits, wall_ms, trusted=limits.trusts_headers)
            if found.rejection is not None:
                return found.rejection
        if found is None or found.grown_bytes > room:
            return _FULL
        if first.producer_id != NO_PRODUCER and not self.producers.make_room(first.producer_id):
            return Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "Too many new producers are on their way.")
        return found.batches

    def _judge_producer(
        self, first: BatchHeader, last: BatchHeader, count: int, *, adds: bool = False
    ) -> Repeat | Rejection | None:
        """None: these batches are the next of their producer, or have none."""
        if first.producer_id == NO_PRODUCER:
            return None
        known = self._judge_sequences(first, last)
        if isinstance(known, Repeat):
            return known
        if known is not ErrorCode.INVALID_PRODUCER_EPOCH:
            wrong = self._judge_transaction(first)
            if wrong is not None:
                return wrong
            if adds and self._misses_first(first):
                known = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known is not ErrorCode.NONE:
            return Rejection(known)
        return None if self.producers.takes(first.producer_id, count) else _PRODUCER_FULL

    def _judge_sequences(self, first: BatchHeader, last: BatchHeader) -> Repeat | ErrorCode:
        return self.producers.judge(
            first.producer_id,
            first.producer_epoch,
            first.base_sequence,
            sequence_after(last.base_sequence, last.last_offset_delta),
        )

    def _judge_transaction(self, first: BatchHeader) -> Rejection | None:
        producer_id = first.producer_id
        begun = producer_id in self.transactions
        if not first.is_transactional:
            return Rejection(ErrorCode.INVALID_TXN_STATE) if begun else None
        if self.joins.number_of(producer_id, first.producer_epoch) is None:
            return Rejection(ErrorCode.CONCURRENT_TRANSACTIONS)  # its transaction ended while it waited here
        return None if begun or len(self.transactions) < OPEN_MAX else _OPEN_FULL

    def _misses_first(self, first: BatchHeader) -> bool:
        return first.is_transactional and first.base_sequence != 0 and first.producer_id not in self.producers

    def needs_join(self, record_set: memoryview | None, limits: Limits, *, zstd_allowed: bool) -> bool:
        """Whether the producer's coordinator has to confirm that its transaction takes this partition, before the
        batches are judged. Not if they are refused anyway, or are stored already."""
        batches = check_record_set(record_set, limits, zstd_allowed=zstd_allowed)
        if isinstance(batches, Rejection):
            return False
        first, last = batches[0][0], batches[-1][0]
        if (
            not first.is_transactional
            or self.joins.number_of(first.producer_id, first.producer_epoch) is not None
        ):
            return False
        known = self._judge_sequences(first, last)
        return not isinstance(known, Repeat) and known is not ErrorCode.INVALID_PRODUCER_EPOCH

    def opens(
        self, record_set: memoryview | None, limits: Limits, held_bytes: int, arrival: Arrival
    ) -> Contents | Opening | None:
        """What opening brought if it is light, else what is to be opened outside the event loop. None: neither is
        needed, as it is decided from the outside."""
        batches = check_record_set(record_set, limits, zstd_allowed=arrival.zstd_allowed)
        if isinstance(batches, Rejection):
            return Contents(batches)
        trusted = arrival.converted or limits.trusts_headers
        found = at_once(batches, limits, arrival.wall_ms, trusted=trusted) if arrival.light else None
        if found is not None:
            return found
        if self._judge_producer(batches[0][0], batches[-1][0], len(batches)) is not None:
            return None  # a batch that is stored is not refused when it comes again
        if held_bytes + len(record_set or b"") > limits.held_bytes_max:
            return None
        return Opening(batches, limits, arrival.wall_ms, trusted=trusted)

    def assign(
        self,
        batches: Sequence[Checked],
        limits: Limits,
        now: Instant,
        committed: int,
    ) -> tuple[int, int]:
        """Give the batches the next offsets. The first offset, and the append time or -1."""
        buffer = self.open
        base = buffer.end
        if not buffer.parts:
            buffer.opened_ms = now.mono_ms
        append_time_ms = self._append_time(now) if limits.log_append_time else NO_TIMESTAMP
        for header, batch, min_ts, max_ts in batches:
            records = batch[HEADER_SIZE:]
            stored = stored_header(batch, buffer.end, self.epoch)
            if append_time_ms != NO_TIMESTAMP:
                stamp(stored, records, append_time_ms, LOG_APPEND_TIME)
                min_ts = max_ts = append_time_ms
            elif max_ts != header.max_timestamp:
                stamp(stored, records, max_ts)
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
            if header.is_transactional:
                self._begin(header)
            buffer.add(stored, records, count=delta + 1, min_ts=min_ts, max_ts=max_ts)
        return base, append_time_ms

    def _begin(self, header: BatchHeader) -> None:
        """A batch of a transaction takes the next offset. The first one begins it."""
        self.open.transactional = True
        if header.producer_id in self.transactions:
            return
        number = self.joins.number_of(header.producer_id, header.producer_epoch)
        assert number is not None, "its producer has joined"
        begun = OpenTransaction(
            producer_id=header.producer_id, epoch=header.producer_epoch, number=number, first=self.open.end
        )
        self.transactions.take(begun)
        self.open.events.append(begun)

    def end(self, end: TransactionEnd, now: Instant, committed: int) -> int | None:
        """Append the marker of a transaction; its offset. None: no transaction of this number is open.

        No limit refuses a marker: it frees what readers wait for. It has its own time, also with LogAppendTime. In
        any case the producer has no longer joined this transaction, or one before.
        """
        self.joins.ended(end.producer_id, end.number)
        begun = self.transactions.of(end.producer_id)
        if begun is None or begun.number != end.number:
            return None
        buffer = self.open
        offset = buffer.end
        if not buffer.parts:
            buffer.opened_ms = now.mono_ms
        marker = memoryview(
            end_marker(
                Marker(end.commit, end.coordinator_epoch),
                producer_id=end.producer_id,
                producer_epoch=end.marker_epoch,
                timestamp_ms=now.wall_ms,
            )
        )
        ended = End(producer_id=end.producer_id, commit=end.commit, offset=offset)
        self.transactions.take(ended)
        buffer.events.append(ended)
        buffer.markers += 1
        buffer.transactional = True
        self.producers.record_marker(
            end.producer_id,
            end.marker_epoch,
            end.coordinator_epoch,
            offset,
            wall_ms=now.wall_ms,
            committed=committed,
        )
        stored = stored_header(marker, offset, self.epoch)
        buffer.add(stored, marker[HEADER_SIZE:], count=1, min_ts=now.wall_ms, max_ts=now.wall_ms)
        return offset

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
        over = too_large(batch, limits)
        if over is not None:
            return over
        error_code = validate_batch(header, batch, transactions=limits.transactions)
        if error_code:
            return Rejection(error_code, _REASONS[error_code] + _fields(header))
        if not zstd_allowed and header.codec is Codec.ZSTD:
            return Rejection(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later.")
    if len(batches) > 1:
        reason = _not_neighbours([header for header, _ in batches])
        if reason is not None:
            return Rejection(ErrorCode.INVALID_RECORD, reason)
        return too_many(batches) or batches
    return batches


def _not_neighbours(headers: list[BatchHeader]) -> str | None:
    """Why these batches cannot stand in one record set: they are of one producer and in sequence."""
    first = headers[0]
    expected = first.base_sequence
    for header in headers:
        if (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch):
            return "A partition's data must be of one producer."
        if header.is_transactional != first.is_transactional:
            return "A partition's data must be all of a transaction, or none of it."
        if first.producer_id == NO_PRODUCER:
            continue
        if header.base_sequence != expected:
            return "The batches' sequences do not follow one another."
        expected = (expected + header.last_offset_delta + 1) & 0x7FFF_FFFF
    return None


def _fields(header: BatchHeader) -> str:
    """The fields that `validate_batch` looks at."""
    return (
        f" (attributes {header.attributes:#x}, base offset {header.base_offset}, {header.records_count} records, last "
        f"offset delta {header.last_offset_delta}, producer {header.producer_id}, epoch {header.producer_epoch}, "
        f"sequence {header.base_sequence})"
    )


def stored_header(batch: memoryview, base_offset: int, leader_epoch: int) -> bytearray:
    """A private copy of the header with its place in the log; neither field is under the checksum."""
    header = bytearray(batch[:HEADER_SIZE])
    patch_batch(header, base_offset, leader_epoch)
    return header


def stamp(header: bytearray, records: memoryview, max_timestamp_ms: int, flags: int = 0) -> None:
    """Sets the largest timestamp and these attributes, and makes a new checksum. With LogAppendTime every record has
    this time."""
    (attributes,) = _ATTRIBUTES.unpack_from(header, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(header, _ATTRIBUTES_AT, attributes | flags)
    _TIMESTAMP.pack_into(header, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    checksum = crc32c(records, crc32c(memoryview(header)[_ATTRIBUTES_AT:]))
    _CRC.pack_into(header, _CRC_AT, checksum)

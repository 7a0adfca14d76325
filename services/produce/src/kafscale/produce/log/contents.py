"""The door: batches are opened here, once, before they are appended. No service opens them again on their way.

`Survey` walks each batch: a body that some client could not read is refused as Apache Kafka's LogValidator refuses
it, and the largest timestamp that is stored is that of the records, whatever the header says. A compacted topic
refuses records without a key, and every topic refuses records from outside of `message.timestamp.before.max.ms` and
`.after.max.ms`. Each such record is named to the client (KIP-467). A topic with a `compression.type` other than
`producer` stores every batch in that codec, as Kafka does: a batch that has the codec already stays as it is,
whatever its level; no record in another one is touched.

Kafka has no bound for what comes out of a batch. Here it is DECOMPRESSED_BYTES_MAX, as for every reader, and
RECORDS_MAX. Beyond a bound the answer is MESSAGE_TOO_LARGE, on which Java's client splits the batch. A small batch
may hold a great deal, so the work is in parts. `at_once` does what is light. For the rest, a caller that has an event
loop runs `unpack` and `pack` in a thread, as they are long calls into codecs, and `steps`, which is Python, a portion
at a time. There is no state: what is found is true of the bytes, whenever they are appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafscale.produce.log.model import Batches, Checked, Limits, RecordFault, Rejection
from kafscale.wire.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    TIMESTAMP_NONE,
    BatchHeader,
    pack_batch,
    read_batch_header,
)
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    Compression,
    check_lz4_frame,
    compress,
    decompress,
)
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import VARINT_BYTES, HeaderBudget, signed, walk
from kafscale.wire.survey import Survey, survey_at_once
from msgspec.structs import replace

LIGHT_RECORDS_MAX: Final = 1_000
LIGHT_PACKED_BYTES_MAX: Final = 128 << 10
LIGHT_BYTES_MAX: Final = 256 << 10
"""What is light takes about a millisecond at most. A thread for it would cost nearly as much. The bytes are of
compressed batches, as they came and as they are open."""
LIGHT_STEPS_MAX: Final = 2_000
"""Records with their headers."""
PORTION: Final = 1_000
"""Records and headers that are walked without a pause."""
RECORDS_MAX: Final = 1_000_000
"""Of one record set: a second's work."""
FAULTS_MAX: Final = 1_000
"""Of one request; the message says how many there are."""
KEYLESS: Final = "A compacted topic takes no record without a key."
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_ANY: Final = 1 << 80


class Contents(NamedTuple):
    """What opening a record set brought: why it is refused, or the batches to append."""

    rejection: Rejection | None = None
    batches: Sequence[Checked] = ()
    grown_bytes: int = 0  # held in addition, because batches were compressed anew


def at_once(batches: Batches, limits: Limits, wall_ms: int, *, trusted: bool = False) -> Contents | None:
    """All of it, for a record set that is light and sound, as nearly every one is. None: `Opening` decides."""
    walks = not trusted or limits.looks_inside
    oldest_min_ms, newest_max_ms = _bounds(limits, wall_ms)
    checked: list[Checked] = []
    records, size = LIGHT_RECORDS_MAX, LIGHT_BYTES_MAX
    for header, batch in batches:
        found: tuple[int, int, bool] | None
        if _repacks(header, limits):
            return None
        if not walks:
            found = header.base_timestamp, header.max_timestamp, False
        else:
            records -= header.records_count
            body: Buffer | None = batch[HEADER_SIZE:]
            if header.attributes & CODEC_MASK and records >= 0:
                body = _light_body(header, batch, size)
                size -= len(body or b"")
            if records < 0 or body is None:
                return None
            found = survey_at_once(header, body, LIGHT_STEPS_MAX)
        if found is None:
            return None
        oldest_ms, newest_ms, keyless = found
        if (
            (keyless and limits.keys_required)
            or newest_ms > newest_max_ms
            or (walks and oldest_ms < oldest_min_ms)
        ):
            return None
        checked.append(Checked(header, batch, oldest_ms, newest_ms))
    return Contents(None, checked)


class Opening:
    """One record set, opened: `unpack`, `steps`, `pack`; then `contents`.

    What went wrong ends it: the parts that are left do nothing. `batches` have passed `check_record_set`. The records
    of `trusted` batches are walked only for a topic that asks for keys or has a bound in the past.
    """

    def __init__(self, batches: Batches, limits: Limits, wall_ms: int, *, trusted: bool = False) -> None:
        self._batches = batches
        self._limits = limits
        self._wall_ms = wall_ms
        self._walks = limits.looks_inside or not trusted
        self._oldest_min_ms, self._newest_max_ms = _bounds(limits, wall_ms)
        self._bodies: list[Buffer] = []
        self._checked: list[Checked] = []
        self._keyless = False
        self._rejection: Rejection | None = None
        self._grown_bytes = 0

    @property
    def has_codec(self) -> bool:
        """Whether something is decompressed or compressed."""
        return any(
            _repacks(header, self._limits) or self._walks and header.attributes & CODEC_MASK
            for header, _ in self._batches
        )

    @property
    def bytes_held(self) -> int:
        """Of bodies that were decompressed."""
        opened = zip(self._batches, self._bodies, strict=False)
        return sum(len(body) for (header, _), body in opened if header.attributes & CODEC_MASK)

    def unpack(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bool:
        """Decompress what is walked or compressed anew. False: more than `bytes_max` come out of all batches
        together."""
        left = bytes_max
        self._bodies = []
        try:
            for header, batch in self._batches:
                body: Buffer = batch[HEADER_SIZE:]
                if header.attributes & CODEC_MASK and (self._walks or _repacks(header, self._limits)):
                    body = _decompressed(header.codec, body, left)
                    left -= len(body)
                self._bodies.append(body)
        except WireError as broken:
            self._bodies = []
            if broken.code is ErrorCode.MESSAGE_TOO_LARGE and bytes_max < DECOMPRESSED_BYTES_MAX:
                return False
            self._rejection = Rejection(broken.code, str(broken))
        return True

    def steps(self) -> Iterator[None]:
        """Walk over the records."""
        if self._rejection is not None:
            return
        if not self._walks:
            self._trust()
            return
        self._checked.clear()
        yield from self._survey()
        if self._rejection is None and self._is_suspect():
            yield from self._list_faults()

    def pack(self) -> None:
        """Compress what the topic stores in another codec."""
        wanted = self._limits.compression
        if wanted is None or self._rejection is not None:
            return
        for number, (each, body) in enumerate(zip(self._checked, self._bodies, strict=True)):
            if not _repacks(each.header, self._limits):
                continue
            batch = _repacked(each.header, body, wanted)
            self._rejection = too_large(batch, self._limits)
            if self._rejection is not None:
                return
            self._checked[number] = each._replace(header=read_batch_header(batch), batch=memoryview(batch))
            self._grown_bytes += len(batch)

    def contents(self) -> Contents:
        if self._rejection is not None:
            return Contents(self._rejection)
        return Contents(None, self._checked, self._grown_bytes)

    def _add(
        self, header: BatchHeader, batch: memoryview, oldest_ms: int, newest_ms: int, keyless: bool
    ) -> None:
        self._checked.append(Checked(header, batch, oldest_ms, newest_ms))
        self._keyless |= keyless

    def _trust(self) -> None:
        """Take the times from the headers."""
        for header, batch in self._batches:
            self._add(header, batch, header.base_timestamp, header.max_timestamp, False)
            if header.max_timestamp > self._newest_max_ms:
                reason = untimely(header.max_timestamp, self._limits, self._wall_ms)
                self._rejection = Rejection(ErrorCode.INVALID_TIMESTAMP, reason)

    def _is_suspect(self) -> bool:
        """Whether some record may have to be refused."""
        return (self._keyless and self._limits.keys_required) or any(
            each.oldest_ms < self._oldest_min_ms or each.newest_ms > self._newest_max_ms
            for each in self._checked
        )

    def _survey(self) -> Iterator[None]:
        budget = HeaderBudget()  # of all batches together
        first = 0
        for (header, batch), body in zip(self._batches, self._bodies, strict=True):
            if first:
                yield
            survey = Survey(header, body, budget)
            try:
                while not survey.go(PORTION):
                    yield
            except WireError as broken:
                fault = RecordFault(first + survey.index, broken.reason)
                faults = (fault,) if broken.code is ErrorCode.INVALID_RECORD else ()
                self._rejection = Rejection(broken.code, str(broken), faults)
                return
            self._add(header, batch, survey.oldest_ms, survey.newest_ms, survey.keyless)
            first += header.records_count

    def _list_faults(self) -> Iterator[None]:
        """Name the records that are refused. As in Kafka, one wrong time makes all of it INVALID_TIMESTAMP."""
        code, records, faults = ErrorCode.INVALID_RECORD, 0, list[RecordFault]()
        count = 0
        for (header, _), body in zip(self._batches, self._bodies, strict=True):
            for delta_ms, _, key_at, _ in walk(header, body):
                reason = self._fault(body, key_at, header.base_timestamp + delta_ms)
                if reason is not None:
                    count += 1
                    code = ErrorCode.INVALID_TIMESTAMP if reason is not KEYLESS else code
                    if len(faults) < FAULTS_MAX:
                        faults.append(RecordFault(records, reason))
                records += 1
                if not records % PORTION:
                    yield
        if faults:
            message = f"{count} of {records} records were refused: {faults[0].message}"
            self._rejection = Rejection(code, message, tuple(faults))

    def _fault(self, body: Buffer, key_at: int, timestamp: int) -> str | None:
        if self._limits.keys_required and signed(body, key_at, VARINT_BYTES)[0] < 0:
            return KEYLESS
        if timestamp == TIMESTAMP_NONE or self._oldest_min_ms <= timestamp <= self._newest_max_ms:
            return None
        return untimely(timestamp, self._limits, self._wall_ms)


def _light_body(header: BatchHeader, batch: memoryview, bytes_max: int) -> bytes | None:
    """What a codec takes well under a millisecond for, however it was compressed."""
    if len(batch) > LIGHT_PACKED_BYTES_MAX:
        return None
    try:
        return _decompressed(header.codec, batch[HEADER_SIZE:], bytes_max)
    except WireError:
        return None


def _bounds(limits: Limits, wall_ms: int) -> tuple[int, int]:
    """The least and the greatest timestamp that a record may have. With LogAppendTime its own is not used."""
    if limits.log_append_time:
        return -_ANY, _ANY
    return max(wall_ms - limits.past_max_ms, _INT64_MIN), min(wall_ms + limits.future_max_ms, _INT64_MAX)


def _repacks(header: BatchHeader, limits: Limits) -> bool:
    wanted = limits.compression
    return wanted is not None and header.codec is not wanted.codec


def _decompressed(codec: Codec, packed: Buffer, bytes_max: int) -> bytes:
    """A body that does not decompress is INVALID_RECORD: on CORRUPT_MESSAGE clients would send the same bytes again.
    (In Kafka the codec's exception becomes UNKNOWN_SERVER_ERROR, which is final too.)"""
    try:
        body = decompress(codec, packed, bytes_max=bytes_max)
        if codec is Codec.LZ4:
            check_lz4_frame(packed)
    except WireError as broken:
        if broken.code is ErrorCode.CORRUPT_MESSAGE:
            raise WireError(broken.what, broken.reason, code=ErrorCode.INVALID_RECORD) from broken
        raise
    return body


def _repacked(header: BatchHeader, body: Buffer, wanted: Compression) -> bytearray:
    """The batch with the same records in another codec; length and CRC are made anew, all else stays."""
    attributes = header.attributes & ~CODEC_MASK | wanted.codec
    return pack_batch(
        replace(header, attributes=attributes), compress(wanted.codec, bytes(body), wanted.level)
    )


def untimely(timestamp: int, limits: Limits, wall_ms: int) -> str:
    """Why a record with this time is refused."""
    return (
        f"The timestamp {timestamp} of a record is {abs(timestamp - wall_ms)} ms "
        f"{'after' if timestamp > wall_ms else 'before'} the clock of this service, {wall_ms}. Compare the clocks of "
        f"producer and service. message.timestamp.before.max.ms is {limits.past_max_ms}, "
        f"message.timestamp.after.max.ms {limits.future_max_ms}."
    )


def too_large(batch: Buffer, limits: Limits) -> Rejection | None:
    if len(batch) <= limits.max_message_bytes:
        return None
    reason = f"A batch of {len(batch)} bytes is over max.message.bytes, {limits.max_message_bytes}."
    return Rejection(ErrorCode.MESSAGE_TOO_LARGE, reason)


def too_many(batches: Batches) -> Rejection | None:
    """A client that splits a batch which is too large gets its records through."""
    count = sum(header.records_count for header, _ in batches)
    if count <= RECORDS_MAX:
        return None
    return Rejection(ErrorCode.MESSAGE_TOO_LARGE, f"{count} records in one request; at most {RECORDS_MAX}.")


def opened(batches: Batches, limits: Limits, wall_ms: int, *, trusted: bool = False) -> Contents:
    """All of it, for a caller that may wait."""
    found = at_once(batches, limits, wall_ms, trusted=trusted)
    if found is not None:
        return found
    opening = Opening(batches, limits, wall_ms, trusted=trusted)
    opening.unpack()
    for _ in opening.steps():
        pass
    opening.pack()
    return opening.contents()

"""Segments on their way: the open buffer, the sealed segments that it becomes, and their uploads.

Write-once: a flight is sealed with its bytes, its offsets and one attempt id, and nothing of it
changes afterwards; every PUT of it carries the same bytes. Two flights of an epoch never share an
offset. Record bytes are referenced, never copied.

Uploads are conditional PUTs. The name of a segment depends on its base offset alone, so writers of several
epochs may meet at one. The epoch decides: `If-None-Match` at first; if an object is there, HEAD shows whose
it is. Ours (by attempt id): an earlier PUT of ours won. An older epoch's: an orphan that can never be
committed any more, replaced with `If-Match` of exactly that etag. Our epoch's or a newer one's: we are
fenced. An unknown program's: refuse, a person must look. Every loop 412 → HEAD → PUT needs another foreign
request to arrive in between, so it ends.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from kafscale.produce.log.claimants import Claimant, FoundObject, claimant_of
from kafscale.produce.log.flush import NEVER
from kafscale.produce.log.model import (
    Action,
    Buffer,
    HeadObject,
    Instant,
    Limits,
    Part,
    PutObject,
    StepDownReason,
    Waiters,
)
from kafscale.storage.heads import Seg
from kafscale.storage.keys import META_ATTEMPT, META_EPOCH, META_LAST, META_TOPIC_ID
from kafscale.storage.objects import IfAbsent, IfMatch
from kafscale.storage.segment import BatchInfo, build_segment

_INDEX_STAMP_AT = 14
_STAMP = struct.Struct(">H")
_PARTS = tuple(Part)
_BACKOFF_DOUBLINGS_MAX = 10
_ABSENT = IfAbsent()


class OpenBuffer:
    """Batches with their final offsets, not yet a segment."""

    __slots__ = (
        "base",
        "batches",
        "bytes",
        "end",
        "max_ts",
        "min_ts",
        "parts",
        "waiters",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self.bytes = 0
        self.parts: list[Buffer] = []
        self.batches: list[BatchInfo] = []
        self.min_ts = NEVER
        self.max_ts = -1
        self.waiters = Waiters()

    def add(self, header: Buffer, records: Buffer, *, count: int, min_ts: int, max_ts: int) -> None:
        """One batch of `count` offsets, whose header has been patched with `end` as its base."""
        size = len(header) + len(records)
        self.batches.append(BatchInfo(self.end, self.end + count - 1, size, count))
        self.parts.append(header)
        self.parts.append(records)
        self.end += count
        self.bytes += size
        if min_ts < self.min_ts:
            self.min_ts = min_ts
        if max_ts > self.max_ts:
            self.max_ts = max_ts


class Stage(Enum):
    """The stage of one object of a flight.

    IDLE → PUTTING; PUTTING → DONE on success, ASKING on a failed condition, PUT_LATER when unknown;
    ASKING → DONE (it is ours), PUTTING (nothing there, or an older epoch's), ASK_LATER when unknown.
    """

    IDLE = auto()
    PUTTING = auto()
    PUT_LATER = auto()
    ASKING = auto()
    ASK_LATER = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What of a failed attempt shows that the store is there: such time does not count as time without it."""

    waited_ms: int = 0  # for its place, while the store answered others
    moved: bool = False  # bytes of it went until its time was over


TRIED = Tried()


class Upload:
    """One object of a flight."""

    __slots__ = (
        "body",
        "condition",
        "etag",
        "failing_since_ms",
        "key",
        "retry_at_ms",
        "size",
        "stage",
        "tries",
    )

    def __init__(self, key: str, body: tuple[Buffer, ...], size: int) -> None:
        self.key = key
        self.body = body
        self.size = size
        self.stage = Stage.IDLE
        self.condition: IfAbsent | IfMatch = _ABSENT
        self.etag = ""
        self.tries = 0
        self.retry_at_ms = NEVER
        self.failing_since_ms = NEVER

    def answered(self) -> None:
        """The store is there: whatever is unknown next counts anew."""
        self.tries = 0
        self.failing_since_ms = NEVER

    def done(self, etag: str) -> None:
        self.stage = Stage.DONE
        self.etag = etag
        self.body = ()
        self.retry_at_ms = NEVER


class Flight:
    """A sealed segment until its commit is decided."""

    __slots__ = (
        "attempt",
        "base",
        "batches",
        "bytes",
        "crc32c",
        "created_ms",
        "end",
        "index",
        "max_ts",
        "min_ts",
        "records",
        "segment",
        "waiters",
    )

    def __init__(
        self,
        buffer: OpenBuffer,
        *,
        attempt: bytes,
        epoch: int,
        created_ms: int,
        segment_key: str,
        index_key: str,
    ) -> None:
        built = build_segment(buffer.base, buffer.batches, buffer.parts, created_ms)
        index = stamped(built.index, epoch)
        self.base = buffer.base
        self.end = buffer.end
        self.bytes = buffer.bytes
        self.attempt = attempt
        self.crc32c = built.crc32c
        self.records = built.records
        self.batches = built.batches
        self.created_ms = created_ms
        self.min_ts = buffer.min_ts
        self.max_ts = buffer.max_ts
        self.waiters = buffer.waiters
        self.segment = Upload(segment_key, tuple(built.body), built.size)
        self.index = Upload(index_key, (index,), len(index))

    @property
    def started(self) -> bool:
        return self.segment.stage is not Stage.IDLE

    @property
    def uploaded(self) -> bool:
        return self.segment.stage is Stage.DONE and self.index.stage is Stage.DONE

    def upload(self, part: Part) -> Upload:
        return self.segment if part is Part.SEGMENT else self.index

    def seg(self, epoch: int) -> Seg:
        """The commit record's entry."""
        assert self.uploaded, "a commit names only objects whose etags are known"
        return Seg(
            base=self.base,
            last_delta=self.end - self.base - 1,
            size=self.segment.size,
            etag=self.segment.etag,
            crc32c=self.crc32c,
            index_size=self.index.size,
            index_etag=self.index.etag,
            epoch=epoch,
            min_ts=self.min_ts,
            max_ts=self.max_ts,
            records=self.records,
            batches=self.batches,
            created_ms=self.created_ms,
        )


def stamped(index: bytes, epoch: int) -> bytes:
    """The index with the low half of the leader epoch in its reserved field.

    Two epochs may write equal entries at the same base. Were the bytes equal as well, a store whose
    etags are content hashes would let a late If-Match of one epoch replace the other's committed
    index (ABA). Segments differ by the epoch in their batches; this makes indexes differ too.
    """
    return index[:_INDEX_STAMP_AT] + _STAMP.pack(epoch & 0xFFFF) + index[_INDEX_STAMP_AT + _STAMP.size :]


class Uploads:
    """The pipeline: flights in offset order, from sealed to uploaded, until the commit takes them."""

    def __init__(self, epoch: int, topic_id: bytes, actions: list[Action]) -> None:
        self.flights: deque[Flight] = deque()
        self.bytes_held = 0  # of the flights whose bytes may still be needed
        self._epoch = epoch
        self._topic_id = topic_id.hex()
        self._actions = actions

    def __iter__(self) -> Iterator[Flight]:
        return iter(self.flights)

    def __len__(self) -> int:
        return len(self.flights)

    def add(self, flight: Flight) -> None:
        self.flights.append(flight)
        self.bytes_held += flight.bytes

    def clear(self) -> None:
        self.flights.clear()
        self.bytes_held = 0

    def start(self, pipeline_max: int) -> None:
        """Begin with every flight that has a place in the pipeline."""
        for position, flight in enumerate(self.flights):
            if position >= pipeline_max:
                return
            if not flight.started:
                for part in _PARTS:
                    self._put(flight, part)

    def done(self, base: int, part: Part, etag: str) -> None:
        found = self._find(base, part, Stage.PUTTING)
        if found is not None:
            self._settle(*found, etag)

    def _settle(self, flight: Flight, upload: Upload, etag: str) -> None:
        upload.done(etag)
        if flight.uploaded:
            self.bytes_held -= flight.bytes

    def conflict(self, base: int, part: Part) -> None:
        found = self._find(base, part, Stage.PUTTING)
        if found is not None:
            found[1].answered()
            self._ask(*found, part)

    def found(self, base: int, part: Part, seen: FoundObject | None) -> StepDownReason | None:
        """HEAD's answer after a failed condition. A reason: this writer must stop."""
        at = self._find(base, part, Stage.ASKING)
        if at is None:
            return None
        flight, upload = at
        upload.answered()
        claimant = self.claimant(seen, flight.attempt)
        if claimant in (Claimant.EPOCH, Claimant.NEWER):
            return StepDownReason.FENCED
        if claimant is Claimant.FOREIGN:
            return StepDownReason.FOREIGN_OBJECT
        if claimant is Claimant.ME:
            assert seen is not None
            self._settle(flight, upload, seen.etag)
        else:
            upload.condition = _ABSENT if seen is None else IfMatch(seen.etag)
            self._put(flight, part)
        return None

    def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
        return claimant_of(seen, attempt, self._epoch)

    def unknown(
        self, base: int, part: Part, limits: Limits, now: Instant, tried: Tried = TRIED
    ) -> StepDownReason | None:
        """Neither done nor refused: the same request again, later. A reason: it has gone on too long."""
        at = self._find(base, part, Stage.PUTTING, Stage.ASKING)
        if at is None:
            return None
        flight, upload = at
        upload.stage = Stage.PUT_LATER if upload.stage is Stage.PUTTING else Stage.ASK_LATER
        since_ms = NEVER if tried.moved else upload.failing_since_ms + tried.waited_ms
        upload.failing_since_ms = min(since_ms, now.mono_ms)
        if now.mono_ms - upload.failing_since_ms >= limits.upload_give_up_ms:
            return StepDownReason.STORE_UNAVAILABLE
        delay_ms = min(
            limits.retry_max_ms, limits.retry_first_ms << min(upload.tries, _BACKOFF_DOUBLINGS_MAX)
        )
        jitter = flight.attempt[upload.tries % len(flight.attempt)]
        upload.retry_at_ms = now.mono_ms + delay_ms // 2 + delay_ms * jitter // 512
        upload.tries += 1
        return None

    def retry_due(self, now: Instant) -> None:
        if self.next_retry_ms() > now.mono_ms:
            return
        for flight in self.flights:
            for part in _PARTS:
                upload = flight.upload(part)
                if upload.retry_at_ms > now.mono_ms:
                    continue
                if upload.stage is Stage.PUT_LATER:
                    self._put(flight, part)
                elif upload.stage is Stage.ASK_LATER:
                    self._ask(flight, upload, part)

    def next_retry_ms(self) -> int:
        due_ms = NEVER
        for flight in self.flights:
            due_ms = min(due_ms, flight.segment.retry_at_ms, flight.index.retry_at_ms)
        return due_ms

    def take_uploaded(self, room: int) -> list[Flight]:
        """Leaves the pipeline: the uploaded flights at its front, in offset order, at most `room`."""
        taken: list[Flight] = []
        while self.flights and len(taken) < room and self.flights[0].uploaded:
            taken.append(self.flights.popleft())
        return taken

    def expects(self, base: int, part: Part) -> bool:
        """Whether a PUT of it is out; False once its flight was given up."""
        return self._find(base, part, Stage.PUTTING) is not None

    def _find(self, base: int, part: Part, *stages: Stage) -> tuple[Flight, Upload] | None:
        """None for a flight given up with the epoch: its late answers mean nothing any more."""
        for flight in self.flights:
            if flight.base == base:
                upload = flight.upload(part)
                assert upload.stage in stages, f"an answer for {base} {part.name} in {upload.stage.name}"
                return flight, upload
        return None

    def _put(self, flight: Flight, part: Part) -> None:
        upload = flight.upload(part)
        upload.stage = Stage.PUTTING
        upload.retry_at_ms = NEVER
        self._actions.append(
            PutObject(
                base=flight.base,
                part=part,
                key=upload.key,
                body=upload.body,
                condition=upload.condition,
                metadata={
                    META_TOPIC_ID: self._topic_id,
                    META_EPOCH: str(self._epoch),
                    META_ATTEMPT: flight.attempt.hex(),
                    META_LAST: str(flight.end - 1),
                },
            )
        )

    def _ask(self, flight: Flight, upload: Upload, part: Part) -> None:
        upload.stage = Stage.ASKING
        upload.retry_at_ms = NEVER
        self._actions.append(HeadObject(base=flight.base, part=part, key=upload.key))

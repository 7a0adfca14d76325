"""Segments on their way: the open buffer, and the flights that it becomes.

Write-once: a flight is sealed with its bytes and its offsets, and nothing of it changes afterwards; every PUT of it
carries the same bytes. Record bytes are referenced; only small slices that are folded are copied. For ever, a flight is
either a segment with objects of its own or a slice of a bundle (`home`). In an epoch an offset has one byte sequence,
but a slice may repeat batches of committed slices before it, whose places in the tail it takes (settling.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from kafscale.log.heads import Head, Seg
from kafscale.log.segment import BatchInfo, Segment
from kafscale.log.transactions import End, Event
from kafscale.produce.log.model import NEVER, Buffer, Part, Published, Repeated, Waiters
from kafscale.storage.objects import IfAbsent, IfMatch

_INDEX_STAMP_AT = 14
_STAMP = struct.Struct(">H")
_ABSENT = IfAbsent()


class OpenBuffer:
    """Batches with their final offsets, not yet a segment."""

    __slots__ = (
        "base",
        "batches",
        "bytes",
        "end",
        "events",
        "markers",
        "max_ts",
        "min_ts",
        "opened_ms",
        "parts",
        "transactional",
        "waiters",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.opened_ms = NEVER  # of its first batch
        self.end = base
        self.bytes = 0
        self.parts: list[Buffer] = []
        self.batches: list[BatchInfo] = []
        self.events: list[Event] = []  # what these batches begin and end, but not those that they repeat
        self.markers = 0  # ends among its events
        self.transactional = False  # it has batches of transactions, or markers
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

    def copied(self) -> OpenBuffer:
        """The same batches in bytes of their own. Nobody waits for them."""
        return self.after(())

    def after(self, before: Sequence[OpenBuffer]) -> OpenBuffer:
        """These batches behind those of `before`, which end where these begin, in one copy."""
        whole = OpenBuffer(before[0].base if before else self.base)
        for each in (*before, self):
            assert each.base == whole.end, "an offset is missing"
            whole.parts += each.parts
            whole.batches += each.batches
            whole.end = each.end
            whole.bytes += each.bytes
            whole.transactional |= each.transactional
            whole.min_ts = min(whole.min_ts, each.min_ts)
            whole.max_ts = max(whole.max_ts, each.max_ts)
        whole.parts = [b"".join(whole.parts)]
        whole.events = self.events
        return whole

    @property
    def aborts(self) -> int:
        """How many transactions its own batches abort: its entry lists each."""
        return sum(1 for event in self.events if isinstance(event, End) and not event.commit)

    def waiters_at(self, offset: int) -> Waiters:
        assert self.base <= offset < self.end, "an assigned batch is in flight or committed"
        return self.waiters


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
        "turns",
    )

    def __init__(self, key: str, body: tuple[Buffer, ...], size: int) -> None:
        self.key = key
        self.body = body
        self.size = size
        self.stage = Stage.IDLE
        self.condition: IfAbsent | IfMatch = _ABSENT
        self.etag = ""
        self.tries = 0
        self.turns = 0  # a condition has failed, and the object that was there may be replaced
        self.retry_at_ms = NEVER
        self.failing_since_ms = NEVER

    def answered(self) -> None:
        """The store answered, so the time without an answer starts again from zero."""
        self.tries = 0
        self.failing_since_ms = NEVER

    def done(self, etag: str) -> None:
        self.stage = Stage.DONE
        self.etag = etag
        self.body = ()
        self.retry_at_ms = NEVER


class Placed(NamedTuple):
    """Where a flight is stored, in the fields of `Seg`."""

    size: int
    etag: str
    index_size: int = 0
    index_etag: str = ""
    bundle: bytes = b""
    position: int = 0


class Objects:
    """The two objects of a segment that is not in a bundle. Their names follow from the base offset."""

    __slots__ = ("attempt", "index", "segment")

    def __init__(
        self, built: Segment, *, attempt: bytes, epoch: int, segment_key: str, index_key: str
    ) -> None:
        index = stamped(built.index, epoch)
        self.attempt = attempt
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

    @property
    def replaces(self) -> int:
        """A slice may take the places of others in the tail; a segment of its own does not."""
        return 0

    @property
    def repeated(self) -> Repeated:
        return Repeated()

    def placed(self) -> Placed:
        return Placed(self.segment.size, self.segment.etag, self.index.size, self.index.etag)


class InBundle:
    """A slice. `built` is what the bundle takes, until it is stored. `batches` are kept for folding and settling. It
    takes the places of the slices `before` in the tail, whose batches it repeats."""

    __slots__ = ("_placed", "batches", "built", "repeated", "replaces")

    def __init__(self, built: Segment, batches: OpenBuffer, before: Sequence[OpenBuffer]) -> None:
        self.built: Segment | None = built
        self.batches = batches
        self.replaces = len(before)
        self.repeated = Repeated(
            sum(batch.records for each in before for batch in each.batches),
            sum(each.bytes for each in before),
        )
        self._placed: Placed | None = None

    @property
    def uploaded(self) -> bool:
        return self._placed is not None

    def stored(self, bundle: bytes, etag: str, position: int) -> None:
        assert self.built is not None, "a slice is stored once"
        self._placed = Placed(self.built.size, etag, bundle=bundle, position=position)
        self.built = None

    def placed(self) -> Placed:
        assert self._placed is not None, "its bundle is stored"
        return self._placed


class Flight:
    """A sealed segment until its commit is decided."""

    __slots__ = (
        "base",
        "batches",
        "bytes",
        "crc32c",
        "created_ms",
        "end",
        "events",
        "home",
        "max_ts",
        "min_ts",
        "records",
        "transactional",
        "waiters",
    )

    def __init__(self, buffer: OpenBuffer, built: Segment, home: Objects | InBundle, created_ms: int) -> None:
        self.home = home
        self.base = buffer.base
        self.end = buffer.end
        self.bytes = buffer.bytes
        self.crc32c = built.crc32c
        self.records = built.records
        self.batches = built.batches
        self.events = tuple(buffer.events)
        self.transactional = buffer.transactional
        self.created_ms = created_ms
        self.min_ts = buffer.min_ts
        self.max_ts = buffer.max_ts
        self.waiters = buffer.waiters

    def seg(self, epoch: int) -> Seg:
        """The commit record's entry, without what its transactions add (`ledger.extended`)."""
        assert self.home.uploaded, "a commit names only objects whose etags are known"
        placed = self.home.placed()
        return Seg(
            base=self.base,
            last_delta=self.end - self.base - 1,
            size=placed.size,
            etag=placed.etag,
            crc32c=self.crc32c,
            index_size=placed.index_size,
            index_etag=placed.index_etag,
            epoch=epoch,
            min_ts=self.min_ts,
            max_ts=self.max_ts,
            records=self.records,
            batches=self.batches,
            created_ms=self.created_ms,
            bundle=placed.bundle,
            position=placed.position,
        )


def published(flights: Sequence[Flight], head: Head, revision: int) -> Published:
    """`head` has committed these flights. A fold is always the first in flight."""
    return Published(
        segments=head.tail[-len(flights) :],
        next=head.next,
        revision=revision,
        repeated=flights[0].home.repeated,
    )


def stamped(index: bytes, epoch: int) -> bytes:
    """The index with the low half of the leader epoch in its reserved field.

    Two epochs may write equal entries at the same base. Were the bytes equal as well, a store whose
    etags are content hashes would let a late If-Match of one epoch replace the other's committed
    index (ABA). Segments differ by the epoch in their batches; this makes indexes differ too.
    """
    return index[:_INDEX_STAMP_AT] + _STAMP.pack(epoch & 0xFFFF) + index[_INDEX_STAMP_AT + _STAMP.size :]

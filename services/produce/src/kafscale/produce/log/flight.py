"""Record sets on their way: the open buffer, and the segments it becomes.

Write-once: a flight is sealed with its bytes, its offsets and one attempt id, and nothing of it
changes afterwards; every PUT of it carries the same bytes. Two flights of an epoch never share an
offset. Record bytes are referenced, never copied.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import NamedTuple

from kafscale.produce.log.flush import NEVER
from kafscale.produce.log.model import Buffer, Part, Token
from kafscale.storage.heads import Seg
from kafscale.storage.objects import IfAbsent, IfMatch
from kafscale.storage.segment import BatchInfo, build_segment

_INDEX_STAMP_AT = 14
_STAMP = struct.Struct(">H")


class Waiter(NamedTuple):
    """A request that this flight's commit will answer."""

    token: Token
    base_offset: int
    log_append_time_ms: int
    deadline_ms: int


class Waiters:
    """Requests of one buffer, with their earliest deadline at hand."""

    __slots__ = ("deadline_ms", "items")

    def __init__(self) -> None:
        self.items: list[Waiter] = []
        self.deadline_ms = NEVER

    def add(self, waiter: Waiter) -> None:
        self.items.append(waiter)
        if waiter.deadline_ms < self.deadline_ms:
            self.deadline_ms = waiter.deadline_ms

    def take_expired(self, mono_ms: int) -> list[Waiter]:
        if self.deadline_ms > mono_ms:
            return []
        expired = [waiter for waiter in self.items if waiter.deadline_ms <= mono_ms]
        self.items = [waiter for waiter in self.items if waiter.deadline_ms > mono_ms]
        self.deadline_ms = min((waiter.deadline_ms for waiter in self.items), default=NEVER)
        return expired

    def take_all(self) -> list[Waiter]:
        taken, self.items, self.deadline_ms = self.items, [], NEVER
        return taken


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
        self.condition: IfAbsent | IfMatch = IfAbsent()
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
        index = _stamped(built.index, epoch)
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


def _stamped(index: bytes, epoch: int) -> bytes:
    """The index with the low half of the leader epoch in its reserved field.

    Two epochs may write equal entries at the same base. Were the bytes equal as well, a store whose
    etags are content hashes would let a late If-Match of one epoch replace the other's committed
    index (ABA). Segments differ by the epoch in their batches; this makes indexes differ too.
    """
    return index[:_INDEX_STAMP_AT] + _STAMP.pack(epoch & 0xFFFF) + index[_INDEX_STAMP_AT + _STAMP.size :]

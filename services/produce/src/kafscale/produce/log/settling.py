"""Settling: which slices of a tail are rewritten, and when. Pure.

A slice of a bundle is in a tail only for a while. Then the owner *settles* it: it writes the batches of a run of
slices into one segment with an ordinary name, and one change of the head puts that segment in their place. A run is
the first slices of the tail that are contiguous and of one leader epoch. It is due when it holds as much as a segment
may, when its first slice is `settle_ms` old, and when the tail is long and begins with a slice, because then a
checkpoint has nothing to move. A fold makes a run no younger: the age is that of the first slice that this owner saw
at its offset. An age begins at the latest when this owner sees the slice: the clock of the owner that wrote it may
have been ahead. A `settle_ms` of 0 makes every run due, without a look at clocks.

The shell writes the segment while commits go on; the change of the head takes its turn like any commit. Until then a
commit adds entries behind the run and a checkpoint takes segments before it, so the run stays as it was planned. A
plan and a fold never meet: neither begins over entries of the other. At most one plan is under way. A plan that failed
is forgotten, and made anew after RETRY_FIRST_MS. This wait doubles with each further failure, up to RETRY_MAX_MS: a
store that fails gets fewer requests, and not more.

Folding: a slice repeats the small slices before it, and takes their places in the tail. A partition with few records
per flush would fill its tail with tiny slices, and each would be settled one by one. So a new slice takes along what
precedes it, as long as that is not more than twice what it has by then: each record is repeated a few times at most
while slices double. Only committed slices of this epoch whose batches are still in memory are folded, never those that
a settle plan is rewriting, and only when nothing of the partition is in flight, so that the commit of the fold finds
the tail as it was. Nothing depends on folding but the length of the tail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kafscale.log.heads import Head, Seg
from kafscale.log.isolation import aborted_in
from kafscale.log.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    BatchInfo,
    Buffer,
    Fault,
    Segment,
    SegmentError,
    build_segment,
    expect,
    verify_segment,
    walk_batches,
)
from kafscale.produce.log.by_size import BySize
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.model import NEVER, Instant, Limits, SettleRun
from kafscale.wire.batches import TIMESTAMP_NONE, empty_batch

FOLD_MIN: Final = 3
"""Slices, at least: a fold of fewer saves too little."""
FOLD_BYTES_MAX: Final = 512 << 10
ENTRY_ABORTS_MAX: Final = 512
"""Aborted transactions that one entry lists: a head is written with each commit. A buffer with as many is sealed, and
no fold lists more."""
_WIDTH: Final = 2


class Keeps(Protocol):
    """A partition with `bytes` of batches in memory."""

    bytes: int

    def clear(self) -> None: ...


class KeptBudget:
    """Memory for the batches of slices of all partitions of an instance. Beyond it one of the partitions with the most
    bytes (`by_size.py`) forgets its own: they are read from the store when they are settled, and are not folded."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._partitions = BySize[Keeps]()

    def resized(self, kept: Keeps, before: int) -> None:
        """The partition has other bytes than `before`."""
        self.used_bytes += kept.bytes - before
        self._partitions.resized(kept, before, kept.bytes)

    def make_room(self) -> None:
        while self.used_bytes > self.bytes_max:
            next(self._partitions.largest_first()).clear()


class Kept:
    """The batches of one partition's slices that its owner has written, by base offset. They are copies: a few bytes
    of a received frame would pin all of it."""

    def __init__(self, budget: KeptBudget) -> None:
        self._budget = budget
        self._slices: dict[int, OpenBuffer] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._slices)

    def get(self, seg: Seg) -> OpenBuffer | None:
        """The batches of this slice."""
        buffer = self._slices.get(seg.base)
        return buffer if buffer is not None and seg.is_slice and buffer.end == seg.end else None

    def add(self, buffer: OpenBuffer) -> None:
        """A slice is committed. A fold replaces the slice at its base."""
        self._drop(buffer.base)
        self._slices[buffer.base] = buffer.copied()
        self._count(buffer.bytes)
        self._budget.make_room()

    def keep_only(self, tail: Sequence[Seg]) -> None:
        """Forget what the tail does not name any more."""
        if not self._slices:
            return
        named = {seg.base: seg.end for seg in tail if seg.is_slice}
        for base, buffer in list(self._slices.items()):
            if named.get(base) != buffer.end:
                self._drop(base)

    def clear(self) -> None:
        self._slices.clear()
        self._count(-self.bytes)

    def _drop(self, base: int) -> None:
        dropped = self._slices.pop(base, None)
        if dropped is not None:
            self._count(-dropped.bytes)

    def _count(self, size: int) -> None:
        self.bytes += size
        self._budget.resized(self, self.bytes - size)


def foldable(head: Head, kept: Kept, size: int, planned_end: int, *, aborts: int = 0) -> list[OpenBuffer]:
    """The batches that a slice of `size` bytes and with so many `aborts` repeats, in offset order; empty if it does not
    fold. A settle plan under way rewrites the offsets below `planned_end`."""
    taken: list[OpenBuffer] = []
    for seg in reversed(head.tail):
        buffer = kept.get(seg)
        if seg.epoch != head.epoch or seg.base < planned_end or buffer is None:
            break
        if buffer.bytes > _WIDTH * size or size + buffer.bytes > FOLD_BYTES_MAX:
            break
        aborts += len(seg.aborted)
        if aborts > ENTRY_ABORTS_MAX:
            break
        taken.append(buffer)
        size += buffer.bytes
    return taken[::-1] if len(taken) >= FOLD_MIN else []


RETRY_FIRST_MS = 10_000
RETRY_MAX_MS = 60_000
RIPE_SPREAD = 0.2
"""Of `settle_ms`, from 0.9 to 1.1 of it: the partitions of a bundle do not settle in the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRun:
    """The segment of a plan is in the store."""

    plan: SettleRun
    seg: Seg
    meta: None = None

    def applied_to(self, head: Head) -> Head:
        """The segment takes the place of its run."""
        run, tail = self.plan.run, head.tail
        at = tail.index(run[0]) if run[0] in tail else len(tail)
        assert tail[at : at + len(run)] == run, "commits add behind a run, checkpoints take before it"
        size = head.bytes + self.seg.size - sum(seg.size for seg in run)
        return replace(head, tail=(*tail[:at], self.seg, *tail[at + len(run) :]), bytes=size)


class Settling:
    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._plan: SettleRun | None = None  # with the shell
        self._ready: SettledRun | None = None  # waits for its turn
        self.fold_from = NEVER  # a slice in flight repeats the offsets from here on, and takes their places
        self._not_before_ms = 0
        self._retry_ms = RETRY_FIRST_MS
        self._wall_lead_ms: int | None = None  # of the wall clock over the monotonic one
        self._looked_at: tuple[Head, int, int] | None = None
        self._run: tuple[Seg, ...] = ()  # of the head and the limit that were looked at last
        self._first: Seg | None = None  # what began this run before anything was folded into it
        self._seen_ms: int | None = None  # when this owner saw that one first, by the monotonic clock

    def due_ms(self, head: Head, limits: Limits) -> int:
        if self._plan is not None:
            return NEVER
        run = self._first_run(head, limits.seal_bytes)
        if not run or self._first is None:
            return NEVER
        long = len(head.tail) >= limits.checkpoint_at and head.tail[0].is_slice
        now = long or not limits.settle_ms or is_full(run, limits.seal_bytes)
        if now or self._wall_lead_ms is None or self._seen_ms is None:
            return self._not_before_ms
        since_ms = min(self._first.created_ms - self._wall_lead_ms, self._seen_ms)
        return max(self._not_before_ms, since_ms + ripening_ms(self._first, limits.settle_ms))

    def take(self, head: Head, limits: Limits, now: Instant) -> SettleRun | None:
        """A plan, if one is due."""
        self._wall_lead_ms = now.wall_ms - now.mono_ms
        run = self._first_run(head, limits.seal_bytes)
        if run and self._seen_ms is None:
            self._seen_ms = now.mono_ms
        if self.due_ms(head, limits) > now.mono_ms:
            return None
        self._plan = SettleRun(plan=next(self._numbers), run=run, epoch=head.epoch)
        return self._plan

    def _first_run(self, head: Head, bytes_max: int) -> tuple[Seg, ...]:
        """Each request asks for it several times, and a head changes with a commit only."""
        seen, stop = self._looked_at, self.fold_from
        if seen is None or seen[0] is not head or seen[1:] != (bytes_max, stop):
            self._looked_at = (head, bytes_max, stop)
            self._run = first_run([seg for seg in head.tail if seg.end <= stop], bytes_max)
            if self._run and (self._first is None or self._first.base != self._run[0].base):
                self._first = self._run[0]
                self._seen_ms = None
        return self._run

    def age_ms(self, head: Head, now: Instant) -> int | None:
        """Of the first slice of the tail; None: it has no slice."""
        first = next((seg for seg in head.tail if seg.is_slice), None)
        if first is None:
            return None
        if self._first is None or self._first.base != first.base or self._seen_ms is None:
            return max(0, now.wall_ms - first.created_ms)
        return max(now.wall_ms - self._first.created_ms, now.mono_ms - self._seen_ms)

    @property
    def planned_end(self) -> int:
        """A plan under way rewrites offsets below this one; 0: there is none."""
        return self._plan.run[-1].end if self._plan is not None else 0

    def rewritten(self, number: int, seg: Seg) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._ready = SettledRun(plan=self._plan, seg=seg)

    def take_ready(self) -> SettledRun | None:
        ready, self._ready = self._ready, None
        return ready

    def failed(self, number: int, now: Instant) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._plan = None
            self._not_before_ms = now.mono_ms + self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)

    def applied(self) -> None:
        self._plan = None
        self._retry_ms = RETRY_FIRST_MS


def first_run(tail: Sequence[Seg], bytes_max: int) -> tuple[Seg, ...]:
    """The first slices of the tail, contiguous and of one leader epoch: at most `bytes_max`, but at least one slice."""
    run: list[Seg] = []
    size = 0
    for seg in tail:
        if not run and not seg.is_slice:
            continue
        size += seg.size
        if run and (not seg.is_slice or seg.epoch != run[0].epoch or size > bytes_max):
            break
        run.append(seg)
    return tuple(run)


def is_full(run: Sequence[Seg], bytes_max: int) -> bool:
    """Whether as much again as its largest slice would not fit."""
    return sum(seg.size for seg in run) + max(seg.size for seg in run) > bytes_max


def ripening_ms(first: Seg, settle_ms: int) -> int:
    """The age at which a run that begins with this slice is old enough."""
    share = 1 - RIPE_SPREAD / 2 + RIPE_SPREAD * (first.crc32c & 0xFFFF) / 0xFFFF
    return int(settle_ms * share)


def check_slice(seg: Seg, source: Buffer) -> None:
    """Raises SegmentError if these are not the bytes of this entry."""
    found = verify_segment(source, batches=False)
    expect(Fault.CHECKSUM, len(source) - FOOTER_SIZE, seg.crc32c, found.footer.crc32c)


class Rewrite:
    """The batches of a run as one segment. `sources` are the slices in their order: as they were read, or the batches
    that their owner has kept, or None if a slice is lost. What cannot be read below `log_start` is passed over: its
    records are deleted, and a batch without records takes their offsets."""

    def __init__(
        self, run: Sequence[Seg], sources: Sequence[Buffer | OpenBuffer | None], log_start: int = 0
    ) -> None:
        self._run = run
        self._sources = sources
        self._log_start = log_start
        self.passed: list[Seg] = []
        self.at = run[0]
        """The slice that `steps` checked last."""
        self._batches: list[BatchInfo] = []
        self._parts: list[Buffer] = []

    def steps(self) -> Iterator[None]:
        """One slice after another; checks those that were read against their entries. Raises SegmentError."""
        for seg, source in zip(self._run, self._sources, strict=True):
            if isinstance(source, OpenBuffer):
                self._batches += source.batches
                self._parts += source.parts
                continue
            if source is None or not self._is_whole(seg, source):
                self._pass_over(seg)
                continue
            self._batches.extend(
                BatchInfo(each.offset, each.last_offset, each.size, each.records)
                for each in walk_batches(source)
            )
            self._parts.append(memoryview(source)[HEADER_SIZE:-FOOTER_SIZE])
            yield

    def _is_whole(self, seg: Seg, source: Buffer) -> bool:
        self.at = seg
        try:
            check_slice(seg, source)
        except SegmentError:
            if seg.end > self._log_start:
                raise
            return False
        return True

    def _pass_over(self, seg: Seg) -> None:
        assert seg.end <= self._log_start, "only what is deleted may be lost"
        batch = empty_batch(seg.base, seg.last, seg.epoch)
        self._batches.append(BatchInfo(seg.base, seg.last, len(batch), 0))
        self._parts.append(batch)
        self.passed.append(seg)

    def segment(self, attempt: bytes) -> Segment:
        """After all steps. It carries random bits of the attempt, so that no two plans write equal bytes."""
        mark = int.from_bytes(attempt[:4], "big")
        return build_segment(
            self._run[0].base, self._batches, self._parts, self._run[-1].created_ms, mark=mark
        )


def settled_seg(
    run: Sequence[Seg], segment: Segment, etag: str, index_etag: str, passed: Collection[Seg] = ()
) -> Seg:
    """The entry that replaces those of the run. Its leader epoch is that of its batches. Those that were `passed` over
    have no times any more."""
    first, held = run[0], [seg for seg in run if seg not in passed]
    return replace(
        first,
        last_delta=segment.last_offset - first.base,
        size=segment.size,
        etag=etag,
        crc32c=segment.crc32c,
        index_size=len(segment.index),
        index_etag=index_etag,
        min_ts=min((seg.min_ts for seg in held), default=TIMESTAMP_NONE),
        max_ts=max((seg.max_ts for seg in held), default=TIMESTAMP_NONE),
        records=segment.records,
        batches=segment.batches,
        created_ms=run[-1].created_ms,
        aborted=aborted_in(run),
        unstable=run[-1].unstable,
        bundle=b"",
        position=0,
    )

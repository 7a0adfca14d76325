"""Which logs are compacted, how far and in which pieces. Pure: Kafka's rules (`LogCleanerManager`, `Cleaner`).

A log starts with compacted segments, which have unique names, followed by dirty ones: groups are published in the order
of the log, so the first segment with the name of the specification is the first dirty one, and no other state is
needed. Compaction never touches the newest segment, the head's tail (it belongs to the owner), records of an open
transaction, and what `min.compaction.lag.ms` protects. Unlike in Kafka, a log is also due when tombstones in it may be
removed, so that they are removed although no producer writes to the log any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kafscale.lake.catalog import Log
from kafscale.log.heads import Aborted, Seg

OUTPUT_BYTES_MAX: Final = 16 << 20
"""Bytes of a group: fetch services read whole objects."""
OUTPUT_RECORDS_MAX: Final = 1_000_000
"""Records of a group, so that the facts of each record fit into memory."""
OUTPUT_SEGMENTS_MAX: Final = 5_000
"""Segments of a group, however small they are."""
SPAN_MAX: Final = (1 << 31) - 1
"""Offsets of one segment count from its base in 32 bits."""


class Reason(StrEnum):
    RATIO = "dirty ratio"
    LAG = "max lag"
    TOMBSTONES = "tombstones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Neighbours of a log, with offsets of [first, end). Without any it is empty."""

    segments: int = 0
    bytes: int = 0
    first: int = 0
    end: int = 0

    def plus(self, seg: Seg) -> Part:
        return Part(
            segments=self.segments + 1,
            bytes=self.bytes + seg.size,
            first=self.first if self.segments else seg.base,
            end=seg.end,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A log of a compacted topic: what of it is clean, what is dirty and may be compacted now, and why it is due.

    `log` is without its segments. `aborted`: its aborted transactions, whose records no reader sees.
    `delay_ms`: how long ago its oldest dirty record should have been compacted by `max.compaction.lag.ms`.
    """

    log: Log
    clean: Part
    dirty: Part
    aborted: tuple[Aborted, ...]
    delay_ms: int
    reason: Reason | None

    @property
    def ratio(self) -> float:
        total = self.clean.bytes + self.dirty.bytes
        return self.dirty.bytes / total if total else 0.0


class Survey:
    """Takes a log's segments in their order, and keeps none but the last."""

    def __init__(self, log: Log, now_ms: int) -> None:
        self._log = replace(log, segments=(), below=())
        self._now_ms = now_ms
        self._last: Seg | None = None
        self._clean, self._dirty = Part(), Part()
        self._is_clean = self._may_go = True
        self._has_tombstones = False
        self._oldest_ms = now_ms
        self._aborted: list[Aborted] = []

    def add(self, seg: Seg) -> None:
        if self._last is not None:  # it is not the newest
            self._look(self._last)
        self._last = seg
        self._aborted += seg.aborted

    def done(self) -> Candidate:
        delay_ms = max(0, self._now_ms - self._log.topic.max_compaction_lag_ms - self._oldest_ms)
        found = Candidate(
            log=self._log,
            clean=self._clean,
            dirty=self._dirty,
            aborted=tuple(self._aborted),
            delay_ms=delay_ms,
            reason=None,
        )
        if self._dirty.segments and delay_ms > 0:
            return replace(found, reason=Reason.LAG)
        if self._dirty.segments and found.ratio > self._log.topic.dirty_ratio_min:
            return replace(found, reason=Reason.RATIO)
        return replace(found, reason=Reason.TOMBSTONES) if self._has_tombstones else found

    def _look(self, seg: Seg) -> None:
        self._is_clean = self._is_clean and is_clean(seg)
        if self._is_clean:
            self._clean = self._clean.plus(seg)
            self._has_tombstones = self._has_tombstones or is_due(seg, self._now_ms)
            return
        if seg.min_ts > 0:  # as far as its batches say when they were written (`maxCompactionDelay`)
            self._oldest_ms = min(self._oldest_ms, seg.min_ts)
        self._may_go = self._may_go and _may_go(self._log, seg, self._now_ms)
        if self._may_go:
            self._dirty = self._dirty.plus(seg)


def is_clean(seg: Seg) -> bool:
    """Only compaction gives a segment a name of its own."""
    return bool(seg.key)


def is_due(seg: Seg, now_ms: int) -> bool:
    """Tombstones in it may go."""
    return 0 < seg.delete_horizon_ms <= now_ms


Group = tuple[Seg, ...]


class Grouping:
    """Neighbours that become one segment each, of one leader epoch, so that epochs keep their first offsets."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = min(bytes_max, OUTPUT_BYTES_MAX)
        self._group: list[Seg] = []
        self._bytes = self._records = 0

    def add(self, seg: Seg) -> Group:
        """The group that ends before this segment; empty while none does."""
        whole = () if not self._group or self._fits(seg) else self.rest()
        self._group.append(seg)
        self._bytes += seg.size
        self._records += seg.records
        return whole

    def rest(self) -> Group:
        group = tuple(self._group)
        self._group, self._bytes, self._records = [], 0, 0
        return group

    def _fits(self, seg: Seg) -> bool:
        return (
            seg.epoch == self._group[0].epoch
            and self._bytes + seg.size <= self._bytes_max
            and self._records + seg.records <= OUTPUT_RECORDS_MAX
            and len(self._group) < OUTPUT_SEGMENTS_MAX
            and seg.last - self._group[0].base <= SPAN_MAX
        )


def _may_go(log: Log, seg: Seg, now_ms: int) -> bool:
    lag_ms = log.topic.min_compaction_lag_ms
    newest_ms = seg.max_ts if seg.max_ts >= 0 else seg.created_ms
    young = lag_ms > 0 and newest_ms > now_ms - lag_ms
    return not young and seg.end <= min(log.stable_end, log.meta.manifest_end)

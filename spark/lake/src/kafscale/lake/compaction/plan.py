"""Which logs are compacted, how far and in which pieces. Pure: Kafka's rules (`LogCleanerManager`, `Cleaner`).

A log begins with segments that were compacted, which have names of their own, and goes on with dirty ones: whatever is
published is published in the log's order, so the first segment with the specification's name is the first dirty one,
and nothing else need be remembered. Never touched are the newest segment, the head's tail, which is its owner's, what
an open transaction may still decide, and what `min.compaction.lag.ms` protects. Beyond Kafka: a log is also taken up
when tombstones in it are due, so that they go although nobody writes to it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Final

from kafscale.lake.catalog import Log
from kafscale.storage.heads import Seg

OUTPUT_BYTES_MAX: Final = 16 << 20
"""Of the segments that become one: fetch services read objects whole."""
OUTPUT_RECORDS_MAX: Final = 1_000_000
"""So that what is known of each record of a group fits into memory."""
SPAN_MAX: Final = (1 << 31) - 1
"""Offsets of one segment count from its base in 32 bits."""


class Reason(StrEnum):
    RATIO = "dirty ratio"
    LAG = "max lag"
    TOMBSTONES = "tombstones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A log of a compacted topic: what of it is clean, what is dirty and may be compacted now, and why it is due.

    `delay_ms`: how long ago its oldest dirty record should have been compacted by `max.compaction.lag.ms`.
    """

    log: Log
    clean: tuple[Seg, ...]
    dirty: tuple[Seg, ...]
    delay_ms: int
    reason: Reason | None

    @property
    def clean_bytes(self) -> int:
        return sum(seg.size for seg in self.clean)

    @property
    def dirty_bytes(self) -> int:
        return sum(seg.size for seg in self.dirty)

    @property
    def ratio(self) -> float:
        return _ratio(self.clean, self.dirty)


def survey(logs: Iterable[Log], now_ms: int) -> list[Candidate]:
    """Every log of a topic whose policy holds `compact`, due or not."""
    return [_look(log, now_ms) for log in logs if log.topic.is_compacted]


def in_turn(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that are due, the dirtiest first."""
    due = [candidate for candidate in candidates if candidate.reason is not None]
    return sorted(due, key=lambda each: (-each.ratio, each.log.topic.name, each.log.partition))


def is_clean(seg: Seg) -> bool:
    """Only compaction gives a segment a name of its own."""
    return bool(seg.key)


def is_due(seg: Seg, now_ms: int) -> bool:
    """Tombstones in it may go."""
    return 0 < seg.delete_horizon_ms <= now_ms


def groups(segments: Sequence[Seg], bytes_max: int) -> Iterator[tuple[Seg, ...]]:
    """Neighbours that become one segment each, of one leader epoch, so that epochs keep their first offsets."""
    group: list[Seg] = []
    for seg in segments:
        if group and not _fits(group, seg, min(bytes_max, OUTPUT_BYTES_MAX)):
            yield tuple(group)
            group = []
        group.append(seg)
    if group:
        yield tuple(group)


def _fits(group: Sequence[Seg], seg: Seg, bytes_max: int) -> bool:
    return (
        seg.epoch == group[0].epoch
        and sum(each.size for each in group) + seg.size <= bytes_max
        and sum(each.records for each in group) + seg.records <= OUTPUT_RECORDS_MAX
        and seg.last - group[0].base <= SPAN_MAX
    )


def _look(log: Log, now_ms: int) -> Candidate:
    topic = log.topic
    clean = tuple(takewhile(is_clean, log.segments))
    rest = log.segments[len(clean) : -1]
    dirty = tuple(takewhile(lambda seg: _may_go(log, seg, now_ms), rest))
    clean = tuple(seg for seg in clean if seg is not log.segments[-1])
    delay_ms = _delay_ms(rest, topic.max_compaction_lag_ms, now_ms)
    reason = None
    if dirty and delay_ms > 0:
        reason = Reason.LAG
    elif dirty and _ratio(clean, dirty) > topic.dirty_ratio_min:
        reason = Reason.RATIO
    elif any(is_due(seg, now_ms) for seg in clean):
        reason = Reason.TOMBSTONES
    return Candidate(log=log, clean=clean, dirty=dirty, delay_ms=delay_ms, reason=reason)


def _may_go(log: Log, seg: Seg, now_ms: int) -> bool:
    lag_ms = log.topic.min_compaction_lag_ms
    newest_ms = seg.max_ts if seg.max_ts >= 0 else seg.created_ms
    young = lag_ms > 0 and newest_ms > now_ms - lag_ms
    return not young and seg.end <= min(log.stable_end, log.meta.manifest_end)


def _ratio(clean: Sequence[Seg], dirty: Sequence[Seg]) -> float:
    dirty_bytes = sum(seg.size for seg in dirty)
    total = sum(seg.size for seg in clean) + dirty_bytes
    return dirty_bytes / total if total else 0.0


def _delay_ms(dirty: Sequence[Seg], lag_ms: int, now_ms: int) -> int:
    """By the first record of each batch, as far as it says when it was written (`maxCompactionDelay`)."""
    oldest_ms = min((seg.min_ts for seg in dirty if seg.min_ts > 0), default=now_ms)
    return max(0, now_ms - lag_ms - oldest_ms)

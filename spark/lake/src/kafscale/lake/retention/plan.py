"""Which segments expire, and why. Pure: Kafka's rules (`UnifiedLog.deleteOldSegments`).

Oldest first, size before time, and each rule stops at the first segment that it does not meet, so what remains is
never a log with a hole: time when a segment's newest record is older than `retention.ms`; size when what remains
without it is still at least `retention.bytes`; deleted when all its records lie below the log start. Only topics
whose policy holds `delete` lose records by time or size. A record without a time is as old as its commit.
Slices of bundles expire too, and the log start moves past them. Below the log start, no run deletes a slice or what
follows it: deletion continues there when the owner has settled the slice.
Ages count from our clock, or from the newest commit if that is later: a clock that lags behind the producing
services' keeps nothing for longer, and by an hour at most, so that no clock of theirs empties a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Final

from kafscale.lake.catalog import Log
from kafscale.log.heads import Seg
from kafscale.storage.topics import Topic

CLOCKS_APART_MAX_MS: Final = 3_600_000


class Rule(StrEnum):
    TIME = "time"
    SIZE = "size"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """-1: no limit. None: the topic's own."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    def or_of(self, topic: Topic) -> tuple[int, int]:
        retention_ms = topic.retention_ms if self.retention_ms is None else self.retention_ms
        retention_bytes = topic.retention_bytes if self.retention_bytes is None else self.retention_bytes
        return retention_ms, retention_bytes


OWN: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDeletion:
    """A segment or slice whose records go, and the first rule by which it expires."""

    log: Log
    segment: Seg
    rule: Rule
    age_ms: int


def plan(logs: Iterable[Log], now_ms: int, limits: Limits = OWN) -> list[PlannedDeletion]:
    """What a run would do now. `limits`: replace the limits of every topic that deletes records."""
    return [doomed for log in logs for doomed in _plan_log(log, now_ms, limits)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Of the segments of a log that are not below its start. `committed_ms`: the newest commit's, 0 without any."""

    bytes: int
    committed_ms: int


class ExpiryRules:
    """The rules, for segments that come one by one, oldest first, from the log start on."""

    def __init__(self, topic: Topic, whole: Whole, now_ms: int, limits: Limits = OWN) -> None:
        self._retention_ms, retention_bytes = limits.or_of(topic)
        self._spare = whole.bytes - retention_bytes if retention_bytes >= 0 else -1
        self._now_ms = max(now_ms, min(whole.committed_ms, now_ms + CLOCKS_APART_MAX_MS))
        self._by_size = True

    def rule_of(self, seg: Seg) -> Rule | None:
        """By which rule this segment expires too. After the first that stays, the caller does not ask again."""
        if self._by_size:
            self._spare -= seg.size
            self._by_size = self._spare >= 0
        if 0 <= self._retention_ms < self.age_ms(seg):
            return Rule.TIME
        return Rule.SIZE if self._by_size else None

    def age_ms(self, seg: Seg) -> int:
        return self._now_ms - (seg.max_ts if seg.max_ts >= 0 else seg.created_ms)


def start_after(log: Log, doomed: Sequence[PlannedDeletion]) -> int:
    """The log start once these segments of it are gone."""
    return max([log.start, *(each.segment.end for each in doomed)])


def _plan_log(log: Log, now_ms: int, limits: Limits) -> Iterator[PlannedDeletion]:
    whole = Whole(
        bytes=sum(seg.size for seg in log.segments),
        committed_ms=max((seg.created_ms for seg in log.segments), default=0),
    )
    rules = ExpiryRules(log.topic, whole, now_ms, limits)
    for seg in takewhile(lambda seg: not seg.is_slice, log.below):
        yield PlannedDeletion(log=log, segment=seg, rule=Rule.DELETED, age_ms=rules.age_ms(seg))
    for seg in log.segments if log.topic.deletes_records else ():
        rule = rules.rule_of(seg)
        if rule is None:
            return
        yield PlannedDeletion(log=log, segment=seg, rule=rule, age_ms=rules.age_ms(seg))

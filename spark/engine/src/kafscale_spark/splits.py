"""Splits spans into tasks: a task reads consecutive segments of one log, about `targetBytes` of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow.compute as pc
from kafscale.lake.catalog import Log
from kafscale.lake.pruning import RECORDS, Subject, prune
from kafscale.log.heads import Meta, Seg
from kafscale.log.isolation import AbortedSearch
from kafscale.log.segments import first_at

from kafscale_spark.spans import Span, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Offsets [first, end) of a log, and the segments that can match.

    Of the log's other segments it keeps only those that list aborted transactions of these offsets.
    """

    log: Log
    segments: tuple[Seg, ...]
    first: int
    end: int


def split(
    spans: Iterable[Span], condition: pc.Expression | None, target_bytes: int, subject: Subject = RECORDS
) -> list[Split]:
    """The splits, in the order of the spans. The condition prunes segments; the task filters rows."""
    by_place = {place_of(span.log): span for span in spans}
    found: list[Split] = []
    for log, segments in prune([span.log for span in by_place.values()], condition, subject):
        found += _cut(by_place[place_of(log)], segments, target_bytes)
    return found


def _cut(span: Span, segments: Iterable[Seg], target_bytes: int) -> Iterator[Split]:
    begun: list[Seg] = []
    size = 0
    for seg in segments:
        if seg.end <= span.first or seg.base >= span.end:
            continue
        if begun and size + seg.size > target_bytes:
            yield _of(span, begun)
            begun, size = [], 0
        begun.append(seg)
        size += seg.size
    if begun:
        yield _of(span, begun)


def _telling(segments: Sequence[Seg], first: int, end: int) -> tuple[Seg, ...]:
    """Those that list aborted transactions of [first, end)."""
    search, found = AbortedSearch(first, end), list[Seg]()
    for seg in islice(segments, first_at(segments, first), None):
        if seg.aborted:
            found.append(seg)
        if search.take(seg):
            break
    return tuple(found)


def _of(span: Span, segments: list[Seg]) -> Split:
    """The part of the log that a task needs, because it is sent to the task."""
    first, end = max(span.first, segments[0].base), min(span.end, segments[-1].end)
    log = replace(span.log, segments=_telling(span.log.segments, first, end), below=(), meta=Meta())
    return Split(log=log, segments=tuple(segments), first=first, end=end)

"""In which order a search reads a topic, and where it goes on. Pure.

Laws (R5): the chunks of a partition go from its newest offset to its oldest, without a gap and without an overlap. Of
the partitions, the chunk with the newest record comes first. A cut says of each partition which offsets are done: all
that are not below it. So a search that goes on at a cut finds what the first one left, and nothing twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.catalog import Log
from kafscale.log.heads import Aborted, Seg
from kafscale.log.isolation import aborted_in

CHUNK_BYTES: Final = 8 << 20
CHUNK_SEGMENTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Offsets [start, end) of a log, which the log of the chunk has only, and all transactions that were aborted in
    them. `records` is an upper bound."""

    log: Log
    start: int
    end: int
    records: int
    newest_ms: int
    skipped: bool
    """No record of it can be new enough."""


def chunks(
    logs: Sequence[Log], cut: Mapping[int, int], since_ms: int | None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Of all partitions in the order of the search. `cut`: a partition that is not in it begins at its end."""
    waiting: list[tuple[int, int, Chunk, Iterator[Chunk]]] = []

    def wait(partition: int, rest: Iterator[Chunk]) -> None:
        if (chunk := next(rest, None)) is not None:
            heapq.heappush(waiting, (-chunk.newest_ms, partition, chunk, rest))

    for log in logs:
        wait(log.partition, _of_log(log, cut.get(log.partition, log.stable_end), since_ms, chunk_bytes))
    while waiting:
        _, partition, chunk, rest = heapq.heappop(waiting)
        yield chunk
        wait(partition, rest)


def _of_log(log: Log, end: int, since_ms: int | None, chunk_bytes: int) -> Iterator[Chunk]:
    """Segments that are too old are chunks of their own kind, which nobody needs to read."""
    end = min(end, log.stable_end)
    aborted = aborted_in(log.segments)
    some: list[Seg] = []
    for seg in reversed(log.between(log.start, end)):
        old = _is_old(seg, since_ms)
        full = len(some) == CHUNK_SEGMENTS or sum(each.size for each in some) + seg.size > chunk_bytes
        if some and (full or old is not _is_old(some[0], since_ms)):
            chunk = _chunk(log, some, end, since_ms, aborted)
            yield chunk
            end, some = chunk.start, []
        some.append(seg)
    if some:
        yield _chunk(log, some, end, since_ms, aborted)


def _is_old(seg: Seg, since_ms: int | None) -> bool:
    return since_ms is not None and seg.max_ts < since_ms


def _chunk(
    log: Log, newest_first: Sequence[Seg], end: int, since_ms: int | None, aborted: Sequence[Aborted]
) -> Chunk:
    segments = tuple(reversed(newest_first))
    start = max(segments[0].base, log.start)
    later = tuple(each for each in aborted if each.first < end <= each.last)
    only = replace(log, start=start, end=end, segments=segments, marked_later=later)
    return Chunk(
        log=only,
        start=start,
        end=end,
        records=sum(seg.records for seg in segments),
        newest_ms=max(seg.max_ts for seg in segments),
        skipped=_is_old(newest_first[0], since_ms),
    )

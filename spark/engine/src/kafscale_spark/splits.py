"""The parts of a query that tasks read: spans are cut into splits, and a task reads the records of its split.

A split is consecutive segments of one log, about `targetBytes` of them. Owners and compaction may replace objects, and
retention may delete them, while a task reads. The scan finds the new objects (`kafscale.lake.scan`). Deleted records
are lost data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import FIELDS, Wanted
from kafscale.lake.pruning import RECORDS, Subject, prune
from kafscale.lake.scan import Loss, placed, scan_segments
from kafscale.log.heads import Meta, Seg
from kafscale.log.isolation import AbortedSearch
from kafscale.log.segments import first_at
from kafscale.runtime.settings import ServiceSettings

from kafscale_spark.clusters import opened, pulled
from kafscale_spark.schemas import shaped
from kafscale_spark.spans import DataLoss, Span, place_of, text_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The same for all tasks of a query: Spark's columns, and the condition that Spark left to the source.

    `shape` converts the lake's columns to Spark's; an export keeps the lake's columns.
    """

    schema: pa.Schema
    condition: pc.Expression | None = None
    fail_on_data_loss: bool = True
    shape: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch] = shaped

    @property
    def decoded(self) -> tuple[str, ...]:
        """The offset is always read: it costs nothing, and rows need a column."""
        return tuple(name for name in FIELDS if name == "offset" or name in self.schema.names)


async def read(lake: Lake, split: Split, ask: Ask) -> AsyncGenerator[pa.RecordBatch, None]:
    """Raises DataLoss, StoreError and CorruptSegment."""
    wanted = Wanted(columns=ask.decoded, first=split.first, end=split.end)
    lost = partial(_refuse if ask.fail_on_data_loss else _accept, split)
    async with aclosing(scan_segments(lake, split.log, split.segments, wanted, lost)) as found:
        async for batch in found:
            if batch.num_rows:
                rows = placed(batch, split.log)
                rows = rows if ask.condition is None else rows.filter(ask.condition)
                yield ask.shape(rows, ask.schema)


def _refuse(split: Split, loss: Loss) -> None:
    place = place_of(split.log)
    if loss.end is None:
        raise DataLoss(f"topic {place[0]} was deleted while it was read")
    raise DataLoss(
        f"records {loss.first} to {loss.end - 1} of {text_of(place)} were deleted while they were read"
    )


def _accept(_split: Split, _loss: Loss) -> None:
    """The task continues with the records that are left."""


def read_split(settings: ServiceSettings, wanted: Split, ask: Ask) -> Iterator[pa.RecordBatch]:
    """Runs in a task. Objects are read ahead while Spark consumes the batches."""

    async def batches() -> AsyncGenerator[pa.RecordBatch, None]:
        async with opened(settings) as lake, aclosing(read(lake, wanted, ask)) as found:
            async for batch in found:
                yield batch

    return pulled(batches())

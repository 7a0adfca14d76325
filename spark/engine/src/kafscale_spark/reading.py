"""A task's work: the records of its split, as Spark's columns.

Compaction may replace objects and retention may delete them while a task reads. The task then reads etcd again. It
continues in the new objects at the first unread offset. Deleted records are lost data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.catalog import Lake, Log, by_place, read_lake
from kafscale.lake.columns import FIELDS, Wanted
from kafscale.lake.pruning import prune
from kafscale.lake.scan import placed, scan_segments
from kafscale.storage.heads import Seg
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed

from kafscale_spark.offsets import text_of
from kafscale_spark.schemas import shaped
from kafscale_spark.spans import DataLoss, place_of
from kafscale_spark.splits import Split

LOOKS_MAX: Final = 5
"""How often a task looks up its segments again, each time because some were gone during the read."""


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
        """The offset is always read: it costs nothing and shows the task's progress."""
        return tuple(name for name in FIELDS if name == "offset" or name in self.schema.names)


async def read(lake: Lake, split: Split, ask: Ask) -> AsyncIterator[pa.RecordBatch]:
    """Raises DataLoss, StoreError and CorruptSegment."""
    log, segments, first = split.log, split.segments, split.first
    for left in reversed(range(LOOKS_MAX)):
        wanted = Wanted(columns=ask.decoded, first=first, end=split.end)
        try:
            async for batch in scan_segments(lake, log, segments, wanted):
                if batch.num_rows:
                    first = batch["offset"][-1].as_py() + 1
                    rows = placed(batch, log)
                    rows = rows if ask.condition is None else rows.filter(ask.condition)
                    yield ask.shape(rows, ask.schema)
            return
        except (ObjectNotFound, PreconditionFailed):
            if not left:
                raise
        log, segments = await _look_again(lake, split, first, ask)


async def _look_again(lake: Lake, split: Split, first: int, ask: Ask) -> tuple[Log, tuple[Seg, ...]]:
    """The current segments of offsets [first, end)."""
    place = place_of(split.log)
    log = by_place(await read_lake(lake, [place[0]])).get(place)
    if log is None or log.topic.topic_id != split.log.topic.topic_id:
        if ask.fail_on_data_loss:
            raise DataLoss(f"topic {place[0]} was deleted while it was read")
        return split.log, ()
    if log.start > first and ask.fail_on_data_loss:
        end = min(log.start, split.end) - 1
        raise DataLoss(f"records {first} to {end} of {text_of(place)} were deleted while they were read")
    chosen = {seg.base for _, segments in prune([log], ask.condition) for seg in segments}
    return log, tuple(seg for seg in log.between(first, split.end) if seg.base in chosen)

"""A task's work: the records of its split, as Spark's columns.

Owners and compaction may replace objects, and retention may delete them, while a task reads. The scan finds the new
objects (`kafscale.lake.scan`). Deleted records are lost data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.catalog import Lake
from kafscale.lake.columns import FIELDS, Wanted
from kafscale.lake.scan import Loss, placed, scan_segments

from kafscale_spark.offsets import text_of
from kafscale_spark.schemas import shaped
from kafscale_spark.spans import DataLoss, place_of
from kafscale_spark.splits import Split


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

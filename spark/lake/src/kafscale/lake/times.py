"""Finds the first record of a log that is not older than a timestamp, as ListOffsets does.

Segments and batches record their newest timestamp. Usually only the first that can contain the record is read. If its
newest timestamp came from an earlier record, the next one is read too.
"""

from __future__ import annotations

from contextlib import aclosing

import numpy as np
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.scan import read_segments


async def offset_at(lake: Lake, log: Log, time_ms: int) -> int | None:
    """None: all records are older. Raises StoreError and CorruptSegment."""
    segments = [seg for seg in log.between(log.start, log.end) if seg.max_ts >= time_ms]
    wanted = Wanted(columns=("offset", "timestamp"), first=log.start, end=log.end)
    async with aclosing(read_segments(lake, log, segments, first=log.start, ahead=1)) as read:
        async for _, body, heads in read:
            for batch in read_columns(body, heads[heads["max_timestamp"] >= time_ms], wanted):
                times = batch["timestamp"].cast("int64").to_numpy()
                found = np.flatnonzero(times >= time_ms)
                if found.size:
                    return int(batch["offset"][int(found[0])].as_py())
    return None

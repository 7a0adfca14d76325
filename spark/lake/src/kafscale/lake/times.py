"""Finds the first record of a log that is not older than a timestamp, as ListOffsets does.

Segments and batches record their newest timestamp. Usually only the first that can contain the record is read. If its
newest timestamp came from an earlier record, the next one is read too.
"""

from __future__ import annotations

import numpy as np
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.scan import parse


async def offset_at(lake: Lake, log: Log, time_ms: int) -> int | None:
    """None: all records are older. Raises StoreError and CorruptSegment."""
    for seg in log.between(log.start, log.end):
        if seg.max_ts < time_ms:
            continue
        body = await lake.fetch(log, seg)
        heads = parse(body, lake.place_of(log, seg).name, seg)
        heads = heads[heads["max_timestamp"] >= time_ms]
        wanted = Wanted(columns=("offset", "timestamp"), first=log.start, end=log.end)
        for batch in read_columns(body, heads, wanted):
            times = batch["timestamp"].cast("int64").to_numpy()
            found = np.flatnonzero(times >= time_ms)
            if found.size:
                return int(batch["offset"][int(found[0])].as_py())
    return None

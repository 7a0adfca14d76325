"""Counts records by the headers of batches, without opening records.

Only a batch that contains the log start offset or the end is opened, to read its offsets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import Heads, check_crcs, without_aborted
from kafscale.lake.scan import bodies, parse, places
from kafscale.storage.heads import Seg
from kafscale.wire.batches import CONTROL
from kafscale.wire.buffers import Buffer

ROWS_MAX: Final = 1 << 17
"""Rows per Arrow batch, because the topic name of each row takes memory."""


async def scan_places(lake: Lake, log: Log, segments: Iterable[Seg]) -> AsyncIterator[pa.RecordBatch]:
    """A row with topic and partition for each record that `scan_segments` would return."""
    aborted = log.aborted
    async for seg, body in bodies(lake, log, segments):
        heads = without_aborted(parse(body, lake.place_of(log, seg).name, seg), aborted)
        left = count_records(body, heads, log.start, log.stable_end)
        while left:
            rows = min(left, ROWS_MAX)
            yield places(log, rows)
            left -= rows


def count_records(segment: Buffer, heads: Heads, first: int, end: int) -> int:
    """The number of records of these batches in [first, end). Transaction markers do not count."""
    heads = heads[(heads["attributes"] & CONTROL) == 0]
    last = heads["base_offset"] + heads["last_offset_delta"]
    inside = (heads["base_offset"] >= first) & (last < end)
    check_crcs(segment, heads[inside])
    across = heads[~inside]
    opened = read_columns(segment, across, Wanted(columns=("offset",), first=first, end=end))
    whole = int(heads["records"][inside].sum())
    return whole + sum(int(batch.num_rows) for batch in opened)

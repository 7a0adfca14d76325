"""Records of logs as Arrow batches. The next segments are read ahead while one is parsed.

Data that cannot match is not read: segments are skipped by offset, then batches, then rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, Heads, check_offsets, scan_heads, without_aborted
from kafscale.storage.heads import Seg
from kafscale.storage.segment import FOOTER_SIZE, HEADER_SIZE, SegmentError, parse_footer

READ_AHEAD: Final = 4
PLACE: Final = {"topic": pa.string(), "partition": pa.int32()}


def parse(segment: bytes, where: str, seg: Seg) -> Heads:
    """The batches of a committed object. Checks that the object is complete and matches its commit."""
    try:
        footer = parse_footer(segment)
    except SegmentError as broken:
        raise CorruptSegment(f"{where}: {broken}", 0) from broken
    if footer.last_offset != seg.last or len(segment) != seg.size:
        raise CorruptSegment(f"{where} is not the object that was committed", 0)
    heads = scan_heads(segment, HEADER_SIZE, len(segment) - FOOTER_SIZE)
    check_offsets(heads, seg.base, seg.last)
    return heads


async def scan(lake: Lake, log: Log, wanted: Wanted) -> AsyncIterator[pa.RecordBatch]:
    """The committed records of one log, in its order. Raises StoreError and CorruptSegment."""
    async for batch in scan_segments(lake, log, log.between(wanted.first, wanted.end), wanted):
        yield batch


async def scan_segments(
    lake: Lake, log: Log, segments: Iterable[Seg], wanted: Wanted
) -> AsyncIterator[pa.RecordBatch]:
    """`scan` of these segments, which the caller has chosen. Stops at the last stable offset."""
    wanted = replace(wanted, first=max(wanted.first, log.start), end=min(wanted.end, log.stable_end))
    aborted = log.aborted
    async for seg, body in bodies(lake, log, segments):
        heads = parse(body, lake.place_of(log, seg).name, seg)
        for batch in read_columns(body, without_aborted(heads, aborted), wanted):
            yield batch


async def bodies(lake: Lake, log: Log, segments: Iterable[Seg]) -> AsyncIterator[tuple[Seg, bytes]]:
    """The objects of these segments. The next ones are read ahead."""
    waiting = deque(segments)
    ahead: deque[tuple[Seg, asyncio.Task[bytes]]] = deque()
    try:
        while waiting or ahead:
            while waiting and len(ahead) < READ_AHEAD:
                seg = waiting.popleft()
                ahead.append((seg, asyncio.create_task(lake.fetch(log, seg))))
            seg, task = ahead.popleft()
            yield seg, await task
    finally:
        for _, task in ahead:
            task.cancel()


def places(log: Log, rows: int) -> pa.RecordBatch:
    """The log's topic and partition, repeated for this number of rows."""
    names = pa.repeat(pa.scalar(log.topic.name, PLACE["topic"]), rows)
    numbers = pa.repeat(pa.scalar(log.partition, PLACE["partition"]), rows)
    return pa.RecordBatch.from_arrays([names, numbers], names=list(PLACE))


def placed(batch: pa.RecordBatch, log: Log) -> pa.RecordBatch:
    """The batch with columns for topic and partition in front. Each value is stored once for all rows."""
    columns = [*places(log, batch.num_rows).columns, *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[*PLACE, *batch.schema.names])

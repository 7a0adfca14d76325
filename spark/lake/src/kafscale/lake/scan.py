"""Records of logs as Arrow batches. The next segments are read ahead while one is parsed.

Data that cannot match is not read: segments are skipped by offset, then batches, then rows.

The log that a reader holds is from one moment. Meanwhile owners settle slices, and compaction replaces segments. The
old objects are deleted after a grace period. A reader that finds an object gone reads the log again, and continues in
the new objects at the first batch that it has not returned. Deleted records are lost.

`offset_at` finds a record by its time, as ListOffsets does. Segments and batches record their newest timestamp. Usually
only the first that can contain the record is read. If that timestamp came from an earlier record, the next is read too.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from kafscale.lake.catalog import Lake, Log, read_log, read_topic
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, Heads, check_offsets, scan_heads, without_aborted
from kafscale.log.heads import Seg
from kafscale.log.segment import FOOTER_SIZE, HEADER_SIZE, SegmentError
from kafscale.log.segment_view import verify_committed
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed

READ_AHEAD: Final = 4
LOOKS_MAX: Final = 5
"""How often a log is read again without progress, each time because objects were gone."""
PLACE: Final = {"topic": pa.string(), "partition": pa.int32()}


@dataclass(frozen=True, slots=True)
class Loss:
    """Records [first, end) were deleted before they were read. `end` None: the topic was deleted.

    The scan may still return those of them that share a batch with offset `end`.
    """

    first: int
    end: int | None


Lost = Callable[[Loss], None]
"""Called with what was deleted. If it returns, the scan continues with the records that are left."""


def parse(segment: bytes, where: str, seg: Seg) -> Heads:
    """The batches of a committed object. Checks that the object is complete and matches its commit."""
    try:
        verify_committed(seg, segment, batches=False)
    except SegmentError as broken:
        raise CorruptSegment(f"{where}: {broken}", 0) from broken
    heads = scan_heads(segment, HEADER_SIZE, len(segment) - FOOTER_SIZE)
    check_offsets(heads, seg.base, seg.last)
    return heads


def scan(lake: Lake, log: Log, wanted: Wanted) -> AsyncGenerator[pa.RecordBatch, None]:
    """The committed records of one log, in its order. Raises StoreError and CorruptSegment."""
    return scan_segments(lake, log, log.between(wanted.first, wanted.end), wanted)


async def scan_segments(
    lake: Lake, log: Log, segments: Iterable[Seg], wanted: Wanted, lost: Lost | None = None
) -> AsyncGenerator[pa.RecordBatch, None]:
    """`scan` of these segments, which the caller has chosen. Stops at the last stable offset."""
    wanted = replace(wanted, first=max(wanted.first, log.start), end=min(wanted.end, log.stable_end))
    aborted = log.aborted
    async with aclosing(read_segments(lake, log, segments, first=wanted.first, lost=lost)) as found:
        async for _, body, heads in found:
            for batch in read_columns(body, without_aborted(heads, aborted), wanted):
                yield batch


async def read_segments(
    lake: Lake,
    log: Log,
    segments: Iterable[Seg],
    *,
    first: int,
    ahead: int = READ_AHEAD,
    lost: Lost | None = None,
) -> AsyncGenerator[tuple[Seg, bytes, Heads], None]:
    """The objects of these segments, each with its batches from offset `first` on. The next objects are read ahead.

    Returns each batch once, also if objects are replaced during the read. Objects that replace these may be longer, so
    between the segments there may be batches that the caller has not chosen. Without `lost`, raises ObjectNotFound or
    PreconditionFailed for deleted records.
    """
    left = tuple(segments)
    end = left[-1].end if left else 0
    first = max(first, left[0].base) if left else 0
    looks = 0
    while left:
        try:
            async with aclosing(_bodies(lake, log, left, ahead)) as bodies:
                async for seg, body in bodies:
                    yield seg, body, _between(parse(body, lake.place_of(log, seg).name, seg), first, end)
                    first, looks = max(first, seg.end), 0
            return
        except (ObjectNotFound, PreconditionFailed):
            looks += 1
            if looks == LOOKS_MAX:
                raise
            loss, left = await _look_again(lake, log, left, first)
            if loss is not None:
                if lost is None:
                    raise
                lost(loss)
                first = end if loss.end is None else loss.end


def _between(heads: Heads, first: int, end: int) -> Heads:
    """An object that was written since may begin with batches that were returned, and end with later ones."""
    last = heads["base_offset"] + heads["last_offset_delta"]
    kept: Heads = heads[(last >= first) & (heads["base_offset"] < end)]
    return kept


async def _look_again(
    lake: Lake, log: Log, chosen: Sequence[Seg], first: int
) -> tuple[Loss | None, tuple[Seg, ...]]:
    """The segments that now hold the chosen ones from offset `first` on."""
    chosen = [seg for seg in chosen if seg.end > first]
    first, end = max(first, chosen[0].base), chosen[-1].end
    topic = await read_topic(lake, log.topic.name)
    if topic is None or topic.topic_id != log.topic.topic_id:
        return Loss(first, None), ()
    now = await read_log(lake, topic, log.partition)
    if now.end < end:  # its head was removed since
        return Loss(first, None), ()
    ends = [seg.end for seg in chosen]

    def holds(seg: Seg) -> bool:
        at = bisect_right(ends, seg.base)
        return at < len(ends) and chosen[at].base < seg.end

    loss = Loss(first, min(now.start, end)) if now.start > first else None
    return loss, tuple(seg for seg in now.between(first, end) if holds(seg))


async def _bodies(
    lake: Lake, log: Log, segments: Iterable[Seg], ahead: int
) -> AsyncGenerator[tuple[Seg, bytes], None]:
    waiting = deque(segments)
    begun: deque[tuple[Seg, asyncio.Task[bytes]]] = deque()
    try:
        while waiting or begun:
            while waiting and len(begun) < ahead:
                seg = waiting.popleft()
                begun.append((seg, asyncio.create_task(lake.fetch(log, seg))))
            seg, task = begun.popleft()
            yield seg, await task
    finally:
        for _, task in begun:
            task.cancel()
        await asyncio.gather(*(task for _, task in begun), return_exceptions=True)


def places(log: Log, rows: int) -> pa.RecordBatch:
    """The log's topic and partition, repeated for this number of rows."""
    names = pa.repeat(pa.scalar(log.topic.name, PLACE["topic"]), rows)
    numbers = pa.repeat(pa.scalar(log.partition, PLACE["partition"]), rows)
    return pa.RecordBatch.from_arrays([names, numbers], names=list(PLACE))


def placed(batch: pa.RecordBatch, log: Log) -> pa.RecordBatch:
    """The batch with columns for topic and partition in front. Each value is stored once for all rows."""
    columns = [*places(log, batch.num_rows).columns, *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[*PLACE, *batch.schema.names])


async def offset_at(lake: Lake, log: Log, time_ms: int) -> int | None:
    """The first record that is not older. None: all are older. Raises StoreError and CorruptSegment."""
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

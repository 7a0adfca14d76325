"""The first record that a group has not read: when it was written, and how many bytes lie from its batch on.

The segment's index says where to begin, so a group that is far behind costs two small reads, whatever the segment's
size. A committed offset may be missing from the log after compaction: the next record there is the first one then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, scan_heads
from kafscale.log.heads import Seg
from kafscale.log.places import Place, index_of
from kafscale.log.segment import (
    BATCH_HEADER_SIZE,
    FOOTER_SIZE,
    HEADER_SIZE,
    SegmentError,
    find_position,
    parse_index,
    read_batch_span,
)
from kafscale.wire.batches import TIMESTAMP_NONE

READ_BYTES: Final = 64 << 10
SEGMENTS_MAX: Final = 16
"""Looked through for a record: after compaction a few may hold none that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUnread:
    """`bytes`: of this segment from the record's batch on. `time_ms`: None when the record has no time, or none was
    found. `is_empty`: there is none to the end of the log."""

    bytes: int
    time_ms: int | None
    is_empty: bool = False


async def first_unread(lake: Lake, log: Log, unread: Sequence[Seg], offset: int) -> FirstUnread:
    """`unread` are the log's segments that hold `offset` or anything behind it; at least one.

    Raises StoreError, also when retention or a deletion came first, and CorruptSegment.
    """
    size, time_ms = await _look(lake, log, unread[0], offset)
    for seg in unread[1:SEGMENTS_MAX]:
        if time_ms is not None:
            break
        _, time_ms = await _look(lake, log, seg, offset)
    is_empty = time_ms is None and len(unread) <= SEGMENTS_MAX
    return FirstUnread(
        bytes=size, time_ms=None if time_ms in (None, TIMESTAMP_NONE) else time_ms, is_empty=is_empty
    )


async def _look(lake: Lake, log: Log, seg: Seg, offset: int) -> tuple[int, int | None]:
    """Bytes from the first batch on that reaches the offset; the time of the first record there, None if none is."""
    place = lake.place_of(log, seg)
    try:
        start = await _start(lake, place, seg, offset)
        return await _walk(_Window(lake, place, seg, start), offset)
    except SegmentError as broken:
        raise CorruptSegment(f"{place.name}: {broken}", broken.position) from broken


async def _start(lake: Lake, place: Place, seg: Seg, offset: int) -> int:
    """Where to begin: a batch at or before the one that holds the offset."""
    index = index_of(place, seg)
    if index is None or seg.size <= READ_BYTES or offset <= seg.base:
        return HEADER_SIZE
    return find_position(parse_index(await index.read(lake.store)), offset)


class _Window:
    """The bytes of one segment's batches from a position on, read as far as the caller needs."""

    def __init__(self, lake: Lake, place: Place, seg: Seg, start: int) -> None:
        self._lake = lake
        self._place = place
        self._start = start
        self.data = b""
        self.stop = seg.size - FOOTER_SIZE - start
        """Where the batches end, counted from the window's start."""

    async def reach(self, end: int) -> None:
        """Have `data` up to there, or up to the end of the batches."""
        end = min(end, self.stop)
        if end > len(self.data):
            begin, ahead = self._start + len(self.data), max(end, len(self.data) + READ_BYTES)
            end = self._start + min(ahead, self.stop)
            self.data += await self._place.read(self._lake.store, begin, end)


async def _walk(window: _Window, offset: int) -> tuple[int, int | None]:
    position, first = 0, None
    while position < window.stop:
        await window.reach(position + BATCH_HEADER_SIZE)
        span = read_batch_span(window.data, position, window.stop)
        if span.last_offset >= offset:
            first = position if first is None else first
            await window.reach(position + span.size)
            time_ms = _time(window.data, position, span.size, offset)
            if time_ms is not None:
                return window.stop - first, time_ms
        position += span.size
    return (0 if first is None else window.stop - first), None


def _time(data: bytes, position: int, size: int, offset: int) -> int | None:
    """Of the first record at or after the offset, as stored; None if the batch holds no such record."""
    heads = scan_heads(data, position, position + size)
    for batch in read_columns(data, heads, Wanted(columns=("timestamp",), first=offset)):
        if batch.num_rows:
            return int(batch["timestamp"].cast("int64")[0].as_py())
    return None

"""Whether bytes are the segment that was committed; the segment in memory, and where its batches start.

Batch starts are found by walking headers from the nearest known start and remembered sparsely, so
that a later request walks at most MARK_BYTES. An `.index` object only adds known starts; one that
does not land on batch headers is ignored. Bytes are never copied: every answer is a position in `data`.
Batches follow one another without a gap, unless the segment holds fewer records than offsets: then compaction removed
some. A gap anywhere else is damage, and no answer skips it.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from typing import Final

from kafscale.log.heads import Seg
from kafscale.log.segment import (
    BATCH_HEADER_SIZE,
    FOOTER_SIZE,
    HEADER_SIZE,
    Buffer,
    Fault,
    SegmentError,
    SegmentIndex,
    VerifiedSegment,
    verify_segment,
)

MARK_BYTES: Final = 16 << 10
PREFIX_SIZE: Final = 12
MAGIC_AT: Final = 16
LAST_DELTA_AT: Final = 23
MAX_TIMESTAMP_AT: Final = 35

_PREFIX = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_MAX_TIMESTAMP = struct.Struct(">q")
_EXTENT = struct.Struct(">qi11xi")  # base offset, length, last offset's delta


def verify_committed(seg: Seg, data: Buffer, *, batches: bool = True) -> VerifiedSegment:
    """Raises SegmentError unless `data` is whole, intact, and the very segment or slice that was committed.

    A store may ignore an etag condition, so the commit record's checksum and extent are always checked. `batches`: as
    `verify_segment`.
    """
    if len(data) != seg.size:
        raise SegmentError(Fault.LENGTH, position=0, expected=seg.size, found=len(data))
    verified = verify_segment(data, batches=batches)
    footer = verified.footer
    if footer.crc32c != seg.crc32c:
        raise SegmentError(
            Fault.CHECKSUM, position=seg.size - FOOTER_SIZE, expected=seg.crc32c, found=footer.crc32c
        )
    extent = (verified.header.base_offset, footer.last_offset)
    if extent != (seg.base, seg.last):
        raise SegmentError(Fault.OFFSET, position=8, expected=(seg.base, seg.last), found=extent)
    return verified


class SegmentView:
    """Positions are absolute in the object; `start` and `end` bound its batches."""

    __slots__ = ("_dense", "_offsets", "_positions", "buffer", "end", "seg", "start")

    def __init__(self, seg: Seg, data: bytes | memoryview) -> None:
        """Raises SegmentError unless `data` is whole, intact, and the very object that was committed."""
        verify_committed(seg, data, batches=False)
        self.seg = seg
        self.buffer = memoryview(data)
        self.start = HEADER_SIZE
        self.end = len(data) - FOOTER_SIZE
        self._dense = seg.records == seg.last_delta + 1
        self._offsets = [seg.base]
        self._positions = [HEADER_SIZE]

    def adopt_index(self, index: SegmentIndex) -> bool:
        """Take the starts of an `.index` object; False, and nothing taken, when they are no batch starts."""
        if index.offsets[0] != self.seg.base or index.positions[-1] > self.end - BATCH_HEADER_SIZE:
            return False
        for offset, position in zip(index.offsets, index.positions, strict=True):
            found, _ = _PREFIX.unpack_from(self.buffer, position)
            if found != offset or self.buffer[position + MAGIC_AT] != 2:
                return False
        self._offsets = list(index.offsets)
        self._positions = list(index.positions)
        return True

    def batch_of(self, offset: int) -> int:
        """Where the batch that holds `offset` starts, or the first after it; `end` when there is none."""
        known = max(0, bisect.bisect_right(self._offsets, offset) - 1)
        for position, _base, _size in self._walk(self._positions[known]):
            if self.last_offset_at(position) >= offset:
                return position
        return self.end

    def batch_from(self, offset: int) -> int:
        """Where the first batch that begins at or above `offset` starts; `end` when there is none."""
        known = max(0, bisect.bisect_right(self._offsets, offset) - 1)
        for position, base, _size in self._walk(self._positions[known]):
            if base >= offset:
                return position
        return self.end

    def boundary_before(self, limit: int) -> int:
        """The greatest batch boundary at or before the position `limit`."""
        if limit >= self.end:
            return self.end
        known = max(0, bisect.bisect_right(self._positions, limit) - 1)
        for position, _base, size in self._walk(self._positions[known]):
            if position + size > limit:
                return position
        return self.end

    def batch_end(self, position: int) -> int:
        return position + self._prefix(position)[1]

    def offset_at(self, position: int) -> int:
        """The first offset at a boundary; behind the last batch, the offset after the segment."""
        return self.seg.end if position >= self.end else self._prefix(position)[0]

    def last_offset_at(self, position: int) -> int:
        base, _ = self._prefix(position)
        return base + int(_LAST_DELTA.unpack_from(self.buffer, position + LAST_DELTA_AT)[0])

    def max_timestamp_at(self, position: int) -> int:
        return int(_MAX_TIMESTAMP.unpack_from(self.buffer, position + MAX_TIMESTAMP_AT)[0])

    def batches(self, position: int = HEADER_SIZE) -> Iterator[int]:
        """The starts of the batches from the boundary `position` on."""
        for start, _base, _size in self._walk(position):
            yield start

    def slice(self, start: int, stop: int) -> memoryview:
        return self.buffer[start:stop]

    def _prefix(self, position: int) -> tuple[int, int]:
        """Base offset and whole size of the batch at `position`."""
        base, length = _PREFIX.unpack_from(self.buffer, position)
        return base, length + PREFIX_SIZE

    def _walk(self, position: int) -> Iterator[tuple[int, int, int]]:
        """(position, base offset, size) from a boundary on, remembering starts on the way."""
        unpack, buffer, end, dense = _EXTENT.unpack_from, self.buffer, self.end, self._dense
        mark_at = self._positions[-1] + MARK_BYTES
        due = None
        while position < end:
            if end - position < BATCH_HEADER_SIZE:
                raise SegmentError(
                    Fault.TOO_SHORT, position=position, expected=BATCH_HEADER_SIZE, found=end - position
                )
            base, length, last_delta = unpack(buffer, position)
            size = length + PREFIX_SIZE
            if size < BATCH_HEADER_SIZE or position + size > end:
                raise SegmentError(Fault.LENGTH, position=position, expected=end - position, found=size)
            if dense and due is not None and base != due:
                raise SegmentError(Fault.OFFSET, position=position, expected=due, found=base)
            due = base + last_delta + 1
            if position >= mark_at:
                self._offsets.append(base)
                self._positions.append(position)
                mark_at = position + MARK_BYTES
            yield position, base, size
            position += size

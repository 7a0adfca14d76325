"""From offsets to segments to byte ranges. Pure.

A partition's answer is whole batches, from the one that holds the fetch offset on, below the upper bound,
and within its limit; it never passes over an offset (`unbroken`). Only the first batch of the first partition that
has one may pass the limits (KIP-74).
Limits are never stretched for anything else, so that an answer is never larger than max(limit, one batch).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.log.heads import Seg
from kafscale.log.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.segment_view import SegmentView
from kafscale.log.segments import OffsetGap, first_at, unbroken

FRAME_SIZE: Final = HEADER_SIZE + FOOTER_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A partition's record set as views of segments; `next_offset` is where the reader goes on."""

    parts: tuple[memoryview, ...]
    size: int
    next_offset: int


class ResponseLimit:
    """What is left of a request's max_bytes, partition by partition in the request's order."""

    __slots__ = ("_empty", "_left")

    def __init__(self, max_bytes: int) -> None:
        self._left = max(0, max_bytes)
        self._empty = True

    @property
    def at_least_one(self) -> bool:
        """No partition has data yet: the next one's first batch passes whatever its size."""
        return self._empty

    @property
    def exhausted(self) -> bool:
        return not self._empty and self._left == 0

    def allow(self, partition_max_bytes: int) -> int:
        return min(self._left, max(0, partition_max_bytes))

    def take(self, size: int) -> None:
        if size:
            self._empty = False
            self._left = max(0, self._left - size)


def choose(segs: Sequence[Seg], offset: int, limit_bytes: int, *, count_max: int) -> list[Seg]:
    """The segments to load for a reader at `offset`: enough to fill the limit, at least one if any.

    How much of the first one lies behind `offset` is estimated from its share of offsets: loading is
    what this decides, never what is served.
    """
    chosen: list[Seg] = []
    expected = 0
    first = first_at(segs, offset)
    for seg in segs[first : first + count_max]:
        if chosen and expected >= limit_bytes:
            break
        chosen.append(seg)
        expected += expected_bytes(seg, offset)
    return chosen


def expected_bytes(seg: Seg, offset: int) -> int:
    """About how many bytes of batches a reader at `offset` finds in the segment."""
    payload = seg.size - FRAME_SIZE
    if offset <= seg.base:
        return payload
    return max(1, payload * (seg.last - offset + 1) // (seg.last_delta + 1))


def bytes_at_most(segs: Sequence[Seg], offset: int, limit_bytes: int) -> int:
    """No more than this can be served from `offset` on, as far as counting matters up to the limit."""
    total = 0
    for seg in segs[first_at(segs, offset) :]:
        total += seg.size - FRAME_SIZE
        if total >= limit_bytes:
            return max(limit_bytes, 1)
    return total


def cut(
    views: Sequence[SegmentView],
    offset: int,
    upper: int,
    limit_bytes: int,
    *,
    at_least_one: bool,
) -> Cut:
    """Join the batches of neighbouring segments that a reader at `offset` may have; a gap ends the answer, and raises
    OffsetGap where nothing is before it."""
    parts: list[memoryview] = []
    left = limit_bytes
    reached = offset
    for view in _unbroken_views(views, offset):
        start = view.start if offset <= view.seg.base else view.batch_of(offset)
        stop = _stop(view, start, upper, left, at_least_one=at_least_one and not parts)
        if stop > start:
            parts.append(view.slice(start, stop))
            left -= stop - start
            reached = view.offset_at(stop)
        if stop < view.end:
            break
    return Cut(parts=tuple(parts), size=sum(map(len, parts)), next_offset=reached)


def _unbroken_views(views: Sequence[SegmentView], offset: int) -> list[SegmentView]:
    joined: list[SegmentView] = []
    try:
        for _ in unbroken((view.seg for view in views), offset):
            joined.append(views[len(joined)])
    except OffsetGap:
        if not joined:
            raise
    return joined


def _stop(view: SegmentView, start: int, upper: int, left: int, *, at_least_one: bool) -> int:
    """Where the part of one segment ends that is below `upper` and fits."""
    stop = view.end if upper > view.seg.last else view.batch_from(upper)
    if stop - start <= left:
        return stop
    fitting = view.boundary_before(start + left)
    if fitting <= start and at_least_one:
        return min(stop, view.batch_end(start))
    return min(stop, fitting)

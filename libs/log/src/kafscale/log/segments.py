"""The segments of a log in its order: those that its manifests list, then those of the head's tail.

The law of every reader: it never passes over an offset. A gap between two segments is damage, because compaction takes
records and leaves the extents of segments as they join. Inside a segment only one that holds fewer records than offsets
may have gaps (`segment_view`). Below the log start nothing need be listed any more.
"""

from __future__ import annotations

import bisect
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Protocol

from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.state import LogState
from kafscale.storage.schema import UnreadableValue

_base = attrgetter("base")
_last = attrgetter("last")


class OffsetGap(UnreadableValue):
    """The next segment does not begin where it must: a reader would skip committed records. The metadata is damaged."""

    def __init__(self, *, due: int, found: int | None) -> None:
        super().__init__(f"offset {due} is due, and the next that is listed is {found}")
        self.due = due
        self.found = found


class Manifests(Protocol):
    """Reads manifests. The two that there are differ in what they keep: `ManifestCache`, `ManifestBlocks`."""

    def listed(self, ref: ManifestRef, first: int) -> AsyncGenerator[Seg, None]:
        """The segments of this manifest that end after `first`. Raises StoreError and UnreadableValue."""


def first_at(segs: Sequence[Seg], offset: int) -> int:
    """The index of the segment that holds `offset`, or of the first after it; len(segs) if none."""
    at = bisect.bisect_right(segs, offset, key=_base)
    return at - 1 if at and segs[at - 1].last >= offset else at


def unbroken(segs: Iterable[Seg], offset: int) -> Iterator[Seg]:
    """The segments, the first of which holds `offset`, as long as each begins where the one before ends.

    Raises OffsetGap instead of passing over an offset.
    """
    due = offset
    for seg in segs:
        yield _at(due, seg, begun=due > offset)
        due = seg.end


def manifests_from(state: LogState, offset: int) -> Sequence[ManifestRef]:
    """Those that list segments which end after `offset`."""
    if offset >= state.tail_start:
        return ()
    return state.chunks[bisect.bisect_left(state.chunks, offset, key=_last) :]


async def segments_from(manifests: Manifests, state: LogState, offset: int) -> AsyncGenerator[Seg, None]:
    """Every segment from the one that holds `offset` on, up to the high watermark, in order. The caller closes it.

    Below the log start it begins with the first segment that is listed. Expects a state that is not torn. Raises
    OffsetGap, and what the manifests raise.
    """
    reached, begun = offset, False
    if offset < state.log_start:
        listed = state.chunks[0].first if state.chunks else state.tail_start
        reached = max(offset, min(listed, state.log_start))
    for ref in manifests_from(state, reached):
        async with aclosing(manifests.listed(ref, reached)) as segs:
            async for seg in segs:
                yield _at(reached, seg, begun=begun)
                reached, begun = seg.end, True
    for seg in state.tail[first_at(state.tail, reached) :]:
        yield _at(reached, seg, begun=begun)
        reached, begun = seg.end, True
    if reached < state.next:
        raise OffsetGap(due=reached, found=None)


def _at(due: int, seg: Seg, *, begun: bool) -> Seg:
    if seg.base > due or (begun and seg.base < due) or seg.last < due:
        raise OffsetGap(due=due, found=seg.base)
    return seg

"""Reads the segments of a pass in order, and the next ones ahead: bounded in number and bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from kafscale.lake.compaction.record_filter import LoadedSegment
from kafscale.storage.heads import Seg

AHEAD_MAX: Final = 8
AHEAD_BYTES_MAX: Final = 32 << 20
"""A segment that is larger than this is read alone."""


async def read_ahead(
    read: Callable[[Seg], Coroutine[Any, Any, LoadedSegment]], segments: AsyncIterator[Seg]
) -> AsyncGenerator[LoadedSegment, None]:
    """Raises what `read` raises, for the segment in turn. The caller closes it; that cancels the reads in flight."""
    ahead: deque[tuple[Seg, asyncio.Task[LoadedSegment]]] = deque()
    following = await anext(segments, None)
    try:
        while following is not None or ahead:
            while following is not None and _has_room([seg for seg, _ in ahead], following):
                ahead.append((following, asyncio.create_task(read(following))))
                following = await anext(segments, None)
            source = await ahead[0][1]
            ahead.popleft()
            yield source
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


def _has_room(ahead: Sequence[Seg], seg: Seg) -> bool:
    if not ahead:
        return True
    return len(ahead) < AHEAD_MAX and sum(each.size for each in ahead) + seg.size <= AHEAD_BYTES_MAX

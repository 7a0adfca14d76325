"""The segments of a log in order, one by one, for a survey and for a pass. None is kept in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from kafscale.lake.catalog import TRIES_MAX, Lake, Log, Outline, read_outline, while_manifests_are_merged
from kafscale.lake.compaction.plan import Group, Grouping
from kafscale.log.heads import Seg
from kafscale.log.manifest_blocks import ManifestBlocks, SegmentLookup
from kafscale.log.meta_swap import Overtaken
from kafscale.log.segments import segments_from
from kafscale.storage.objects import ObjectNotFound


async def follow(lake: Lake, outline: Outline, first: int, end: int) -> AsyncGenerator[Seg, None]:
    """The listed segments after `first` that end at or before `end`. The caller closes it.

    Meanwhile owners may merge manifests, and other rounds may replace segments: then the rest is read from the current
    meta. Raises Overtaken if it does not continue where the last segment ended, and ObjectNotFound if a manifest is
    lost: if TRIES_MAX reads of meta in a row found no segment.
    """
    last: Seg | None = None
    tries = TRIES_MAX
    while True:
        try:
            async with aclosing(segments_from(ManifestBlocks(lake.store), outline, first)) as segments:
                async for seg in segments:
                    if last is not None and seg.base != last.end:
                        raise Overtaken(
                            outline.name, f"what followed {last.last} was replaced under the read"
                        )
                    if seg.end > end:
                        return
                    yield seg
                    last, first, tries = seg, seg.end, TRIES_MAX
            return
        except ObjectNotFound:
            tries -= 1
            if not tries:
                raise
        outline = await read_outline(lake, outline.topic, outline.partition)


async def is_listed(lake: Lake, log: Log, seg: Seg) -> bool:
    """The log names this object now. Raises ObjectNotFound of a manifest that is lost, EtcdError and StoreError."""

    async def read() -> bool:
        outline = await read_outline(lake, log.topic, log.partition)
        walk = SegmentLookup(ManifestBlocks(lake.store), outline)
        try:
            now = await walk.at(seg.base)
        finally:
            await walk.close()
        listed = now is not None and (now.key, now.etag) == (seg.key, seg.etag)
        return listed and seg.end > outline.meta.swept

    return await while_manifests_are_merged(read)


class Groups:
    """The groups of a pass, for two consumers: one reads the segments ahead, the other takes the groups."""

    def __init__(self, segments: AsyncIterator[Seg], bytes_max: int, wants: Callable[[Group], bool]) -> None:
        self._segments = segments
        self._grouping = Grouping(bytes_max)
        self._wants = wants
        self._unread: deque[Group] = deque()
        self._untaken: deque[Group] = deque()

    async def next(self) -> Group | None:
        """None: that was the last one."""
        if not self._untaken and not await self._pull():
            return None
        return self._untaken.popleft()

    async def segments(self) -> AsyncGenerator[Seg, None]:
        while self._unread or await self._pull():
            for seg in self._unread.popleft():
                yield seg

    async def _pull(self) -> bool:
        async for seg in self._segments:
            if (whole := self._grouping.add(seg)) and self._wants(whole):
                return self._came(whole)
        rest = self._grouping.rest()
        return bool(rest) and self._wants(rest) and self._came(rest)

    def _came(self, group: Group) -> bool:
        self._unread.append(group)
        self._untaken.append(group)
        return True

"""Logs as lag needs them: segment by segment where a group's next record is and where the log grows, and each stretch
between these as one segment that only has its extent, its bytes and its newest times.

So a sample costs what has changed, whatever lies in the logs: a stretch is a manifest's digest, and while a group
commits nothing the manifest with its next record is not looked at again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from kafscale.lake.catalog import (
    Lake,
    Log,
    Outline,
    TopicPartition,
    partitions_of,
    read_outline,
    read_outlines,
    read_topics,
)
from kafscale.lake.lag.first_unread import SEGMENTS_MAX
from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifests import Line, seg_of
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import Topic

log = logging.getLogger(__name__)

LOGS_AT_ONCE: Final = 4
TRIES_MAX: Final = 5
STRETCHES_MAX: Final = 10_000
"""ManifestBlocks whose shape is remembered, each for the offsets that groups had in it."""


async def read_all(lake: Lake) -> list[Outline]:
    """Of all topics, by topic and partition. One that cannot be read is left out and named in the log of this process:
    a report of all others must not fail for it. Raises EtcdError."""
    return await read_outlines(lake, partitions_of(await read_topics(lake)), _pass_over)


async def read_those(
    lake: Lake, topics: Iterable[Topic], places: Collection[TopicPartition]
) -> list[Outline]:
    """As `read_all`, of these places in these topics."""
    wanted = [(topic, part) for topic, part in partitions_of(topics) if (topic.name, part) in places]
    return await read_outlines(lake, wanted, _pass_over)


Offsets = Mapping[TopicPartition, Collection[int]]
"""Of each topic and partition what groups have committed."""


class Outlines:
    """Reads the logs of a lake again and again."""

    def __init__(self, lake: Lake, *, cache_bytes_max: int = 0) -> None:
        self._lake = lake
        self._manifests = ManifestBlocks(lake.store, cache_bytes_max=cache_bytes_max)
        self._known: OrderedDict[tuple[str, tuple[int, ...]], tuple[Seg, ...]] = OrderedDict()

    async def read(self, offsets: Offsets, since_ms: int, among: Iterable[Topic] | None = None) -> list[Log]:
        """By topic and partition; what was committed since `since_ms` comes segment by segment. A log that cannot be
        read is skipped, as by `read_all`. With `among` only the logs of `offsets` in these topics are read.
        Raises EtcdError, StoreError."""
        if among is None:
            outlines = await read_all(self._lake)
        else:
            outlines = await read_those(self._lake, among, offsets.keys())
        logs = await gather_bounded(
            (self._readable(each, offsets, since_ms) for each in outlines), LOGS_AT_ONCE
        )
        return [log for log in logs if log is not None]

    async def _readable(self, outline: Outline, offsets: Offsets, since_ms: int) -> Log | None:
        try:
            return await self._log(outline, offsets, since_ms)
        except (ObjectNotFound, UnreadableValue) as damage:
            _pass_over(outline.topic, outline.partition, damage)
            return None

    async def _log(self, outline: Outline, offsets: Offsets, since_ms: int) -> Log:
        asked = sorted(offsets.get((outline.topic.name, outline.partition), ()))
        for left in reversed(range(TRIES_MAX)):
            try:
                return outline.log(await self._listed(outline, asked, since_ms))
            except ObjectNotFound:
                if not left:
                    raise
            outline = await read_outline(self._lake, outline.topic, outline.partition)
        raise AssertionError("the last try returns or raises")

    async def _listed(self, outline: Outline, asked: list[int], since_ms: int) -> list[Seg]:
        start = outline.meta.log_start
        found: list[Seg] = []
        wanted = 0  # segments behind a group's next record that are looked through for its time
        for ref in outline.meta.chunks:
            if ref.last < start:
                continue
            here = [
                offset for offset in (max(each, start) for each in asked) if ref.first <= offset <= ref.last
            ]
            digest = await self._manifests.digest(ref.key)
            if digest.created_ms >= since_ms or wanted:
                some = [seg async for seg in self._told(ref, here, start, since_ms, wanted)]
            elif here or ref.first < start:
                some = list(await self._remembered(ref, here, max(start, ref.first), since_ms))
            else:
                some = [_stretch_of(ref, digest.bytes, digest.created_ms)]
            found += some
            wanted = max(0, (SEGMENTS_MAX if here else wanted) - len(some))
        return found

    async def _remembered(
        self, ref: ManifestRef, here: list[int], start: int, since_ms: int
    ) -> tuple[Seg, ...]:
        """A log's start moves when retention runs, and then groups' offsets may as well."""
        key = ref.key, (start, *here)
        known = self._known.get(key)
        if known is None:
            known = tuple([seg async for seg in self._told(ref, here, start, since_ms, 0)])
            self._known[key] = known
            if len(self._known) > STRETCHES_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    async def _told(
        self, ref: ManifestRef, here: Iterable[int], start: int, since_ms: int, wanted: int
    ) -> AsyncIterator[Seg]:
        """The manifest's segments that do not end at `start` or below, those that nobody asks for joined."""
        waiting = list(here)
        stretch = _Stretch()
        async with aclosing(self._manifests.lines([ref], start, ref.last + 1)) as lines:
            async for line in lines:
                while waiting and waiting[0] <= line.base + line.last_delta:
                    wanted = SEGMENTS_MAX
                    waiting.pop(0)
                if not wanted and line.created < since_ms:
                    stretch.add(line)
                    continue
                if stretch.first is not None:
                    yield stretch.joined()
                    stretch = _Stretch()
                yield seg_of(line)
                wanted = max(0, wanted - 1)
        if stretch.first is not None:
            yield stretch.joined()


class _Stretch:
    """Neighbours that become one segment. There may be millions: none is built but the first."""

    def __init__(self) -> None:
        self.first: Seg | None = None
        self._last = self._size = self._created_ms = 0
        self._max_ts = -1

    def add(self, line: Line) -> None:
        if self.first is None:
            self.first = seg_of(line)
        self._last = line.base + line.last_delta
        self._size += line.size
        self._max_ts = max(self._max_ts, line.max_ts)
        self._created_ms = max(self._created_ms, line.created)

    def joined(self) -> Seg:
        assert self.first is not None, "it is empty"
        return replace(
            self.first,
            last_delta=self._last - self.first.base,
            size=self._size,
            max_ts=self._max_ts,
            created_ms=self._created_ms,
        )


def _stretch_of(ref: ManifestRef, size: int, created_ms: int) -> Seg:
    return Seg(
        base=ref.first,
        last_delta=ref.last - ref.first,
        size=size,
        etag="",
        crc32c=0,
        index_size=0,
        index_etag="",
        epoch=0,
        min_ts=-1,
        max_ts=-1,
        records=0,
        batches=0,
        created_ms=created_ms,
    )


def _pass_over(topic: Topic, partition: int, damage: Exception) -> None:
    log.error("partition skipped: %s/%d: %s", topic.name, partition, damage)

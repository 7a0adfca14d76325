"""Logs as lag needs them: segment by segment where a group's next record is and where the log grows, and each stretch
between these as one segment that only has its extent, its bytes and its newest times.

So a sample costs what has changed, whatever lies in the logs: a stretch is a manifest's digest, and while a group
commits nothing the manifest with its next record is not looked at again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kafscale.lake.catalog import Lake, Log, Outline, read_outlines, read_topics
from kafscale.lake.lag.first_unread import SEGMENTS_MAX
from kafscale.lake.listing import Manifests
from kafscale.lake.retention.together import together
from kafscale.storage.heads import ManifestRef, Seg
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

log = logging.getLogger(__name__)

LOGS_AT_ONCE: Final = 4
TRIES_MAX: Final = 5
STRETCHES_MAX: Final = 10_000
"""Manifests whose shape is remembered, each for the offsets that groups had in it."""

Offsets = Mapping[tuple[str, int], Collection[int]]
"""Of each topic and partition what groups have committed."""


class Outlines:
    """Reads the logs of a lake again and again."""

    def __init__(self, lake: Lake, *, cache_bytes_max: int = 0) -> None:
        self._lake = lake
        self._manifests = Manifests(lake.store, cache_bytes_max=cache_bytes_max)
        self._known: OrderedDict[tuple[str, tuple[int, ...]], tuple[Seg, ...]] = OrderedDict()

    async def read(self, offsets: Offsets, since_ms: int) -> list[Log]:
        """By topic and partition; what was committed since is told segment by segment. A log that cannot be read is
        left out and named in the log of this process. Raises EtcdError, StoreError."""
        topics = await read_topics(self._lake)
        places = [(topic, part) for topic in topics for part in range(topic.partitions)]
        outlines = await read_outlines(self._lake, places, _pass_over)
        logs = await together((self._readable(each, offsets, since_ms) for each in outlines), LOGS_AT_ONCE)
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
            (outline,) = await read_outlines(self._lake, [(outline.topic, outline.partition)])
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
            if digest.created_ms >= since_ms or ref.first < start or wanted:
                some = [seg async for seg in self._told(ref, here, start, since_ms, wanted)]
            elif here:
                some = list(await self._remembered(ref, here, since_ms))
            else:
                some = [_stretch_of(ref, digest.bytes, digest.created_ms)]
            found += some
            wanted = max(0, (SEGMENTS_MAX if here else wanted) - len(some))
        return found

    async def _remembered(self, ref: ManifestRef, here: list[int], since_ms: int) -> tuple[Seg, ...]:
        key = ref.key, tuple(here)
        known = self._known.get(key)
        if known is None:
            known = tuple([seg async for seg in self._told(ref, here, 0, since_ms, 0)])
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
        stretch: Seg | None = None
        async for seg in self._manifests.listed([ref], start, ref.last + 1):
            while waiting and waiting[0] < seg.end:
                wanted = SEGMENTS_MAX
                waiting.pop(0)
            if wanted or seg.created_ms >= since_ms:
                if stretch is not None:
                    yield stretch
                    stretch = None
                yield seg
                wanted = max(0, wanted - 1)
            else:
                stretch = seg if stretch is None else _joined(stretch, seg)
        if stretch is not None:
            yield stretch


def _joined(stretch: Seg, seg: Seg) -> Seg:
    return replace(
        stretch,
        last_delta=seg.last - stretch.base,
        size=stretch.size + seg.size,
        max_ts=max(stretch.max_ts, seg.max_ts),
        created_ms=max(stretch.created_ms, seg.created_ms),
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
    log.error("%s/%d is passed over: %s", topic.name, partition, damage)

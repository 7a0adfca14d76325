"""A run of retention: log starts move, the reads under way get their grace, then objects go, then the books are made.

Each step leaves a state that any reader stands and from which the next run goes on, so a run may be killed anywhere.
Only what lay below a log start before the grace began is deleted after it. Nobody is asked and nobody is told but
etcd; two runs at once do each other's work and no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Lake, Log, read_topics
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.retention.overtaken import Overtaken
from kafscale.lake.retention.starts import Cut, move_starts
from kafscale.lake.retention.sweep import sweep
from kafscale.lake.retention.together import together
from kafscale.storage.heads import CorruptValue
from kafscale.storage.topics import Topic

GRACE_S: Final = 300.0
"""Longer than any fetch may hold on to a segment that it has chosen."""
LOGS_AT_ONCE: Final = 8
LOGS_PER_READ: Final = 1_000
"""Whose segments are in memory together."""

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it, of how much; 0 of 0: nobody knows yet."""


@dataclass(slots=True)
class Report:
    """What a run did. It is true at any moment of the run, also of one that failed."""

    logs: int = 0
    moved: int = 0
    """Logs that start later than before."""
    segments: int = 0
    """Segments whose objects are gone."""
    bytes: int = 0
    fates: Counter[Fate] = field(default_factory=Counter)
    """What became of each object."""
    missed: dict[str, str] = field(default_factory=dict)
    """topic/partition -> why it was passed over."""

    @property
    def left(self) -> int:
        """Objects that should be gone and are not: the next run tries again."""
        return self.fates[Fate.FAILED]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Retention:
    """One run. `report` may be read while it goes on."""

    def __init__(
        self,
        lake: Lake,
        *,
        grace_s: float = GRACE_S,
        now_ms: Callable[[], int] = wall_ms,
        progress: Progress = lambda *_: None,
    ) -> None:
        self._lake = lake
        self._grace_s = grace_s
        self._now_ms = now_ms
        self._progress = progress
        self.report = Report()

    async def run(self, names: Iterable[str] | None = None) -> Report:
        """Over these topics, or all. Raises EtcdError and StoreError."""
        chosen = None if names is None else frozenset(names)
        topics = [t for t in await read_topics(self._lake) if chosen is None or t.name in chosen]
        cuts = await self._cut(topics)
        if not cuts:
            return self.report
        self._progress("waiting for reads under way", 0, 0)
        await asyncio.sleep(self._grace_s)
        segments = sum(len(cut.segments) for cut in cuts)
        self._progress("deleting segments", 0, segments)
        for at in range(0, len(cuts), LOGS_PER_READ):
            some = cuts[at : at + LOGS_PER_READ]
            await together((self._finish(cut, segments) for cut in some), LOGS_AT_ONCE)
        return self.report

    async def _cut(self, topics: Sequence[Topic]) -> list[Cut]:
        cuts: list[Cut] = []
        total = sum(topic.partitions for topic in topics)
        for some in _some(topics):
            found = await move_starts(self._lake, some, self._now_ms)
            self.report.logs += sum(topic.partitions for topic in some)
            self.report.moved += sum(cut.moved for cut in found.made)
            self.report.missed |= found.missed
            cuts += [cut for cut in found.made if cut.segments]
            self._progress("moving log starts", self.report.logs, total)
        return cuts

    async def _finish(self, cut: Cut, segments: int) -> None:
        fates = await delete_all(self._lake, condemned(self._lake, cut))
        self.report.fates.update(fates)
        pairs = zip(cut.segments, fates[::2], fates[1::2], strict=True)
        gone = [seg for seg, *both in pairs if all(fate.is_over for fate in both)]
        self.report.segments += len(gone)
        self.report.bytes += sum(seg.size + seg.index_size for seg in gone)
        self._progress("deleting segments", self.report.segments, segments)
        try:
            left = await sweep(self._lake, cut, {(seg.base, seg.etag) for seg in gone})
        except (Overtaken, CorruptValue) as trouble:
            self.report.missed[f"{cut.topic.name}/{cut.partition}"] = str(trouble)
            return
        manifests = [Condemned(topic=cut.topic, key=key, etag=None) for key in left]
        self.report.fates.update(await delete_all(self._lake, manifests))


def condemned(lake: Lake, cut: Cut) -> list[Condemned]:
    """Of each segment its object, then its index."""
    log = Log(topic=cut.topic, partition=cut.partition)
    found = []
    for seg in cut.segments:
        objects = (
            (lake.key_of(log, seg), seg.etag, seg.size),
            (lake.index_key_of(log, seg), seg.index_etag, seg.index_size),
        )
        found += [Condemned(topic=cut.topic, key=key, etag=etag, size=size) for key, etag, size in objects]
    return found


def _some(topics: Sequence[Topic]) -> Iterable[list[Topic]]:
    """Whole topics, of about LOGS_PER_READ partitions together."""
    some: list[Topic] = []
    for topic in topics:
        some.append(topic)
        if sum(each.partitions for each in some) >= LOGS_PER_READ:
            yield some
            some = []
    if some:
        yield some

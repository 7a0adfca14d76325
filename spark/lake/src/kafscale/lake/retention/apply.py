"""A run of retention: it moves log starts, waits for the reads in flight, deletes objects, and records this in meta.

The run processes the logs in batches. Each batch has its own grace, during which the next batches are read. The run
records the last log that it finished, so the next run resumes after it. Every step leaves a state that readers can
handle and from which the next run can continue, so a run may be killed at any point. After a grace, only segments that
were below a log start before the grace began are deleted. Only etcd coordinates the runs: two runs at once do the same
work and do no harm. The memory that a run uses does not depend on the length of a log.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.lake.catalog import Lake, partitions_of, read_outline, read_topics
from kafscale.lake.resume import Partition, behind, read_place, through, write_place
from kafscale.lake.retention.deletes import Condemned, Fate, condemned, delete_all
from kafscale.lake.retention.log_starts import Cut, StartsMax, move_starts
from kafscale.lake.retention.sweep import sweep
from kafscale.log.heads import Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.meta_swap import Overtaken
from kafscale.log.segments import segments_from
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s, wall_ms
from kafscale.storage.task_groups import gather_bounded

GRACE_S: Final = 300.0
"""Longer than any fetch may hold on to a segment that it has chosen."""
LOGS_AT_ONCE: Final = 4
LOGS_PER_BATCH: Final = 1_000
LOGS_WAITING_MAX: Final = 20_000
"""Logs whose start has moved and whose grace is not over. Beyond that, no new batch starts."""
PORTION: Final = 5_000
"""Segments of a log that are deleted before meta is updated."""
JOB: Final = "retention"

Progress = Callable[[str, int, int], None]
"""The activity, the count done and the total; 0 of 0: unknown."""


@dataclass(slots=True)
class Report:
    """What a run did. It is valid at any moment of the run, also after a failure."""

    logs: int = 0
    moved: int = 0
    """Logs that start later than before."""
    segments: int = 0
    """Segments whose objects are gone."""
    bytes: int = 0
    fates: Counter[Fate] = field(default_factory=Counter)
    """The outcome of each object."""
    missed: dict[str, str] = field(default_factory=dict)
    """topic/partition -> why it was skipped."""

    @property
    def left(self) -> int:
        """Objects that could not be deleted. The next run tries again."""
        return self.fates[Fate.FAILED]

    @property
    def stands_still(self) -> bool:
        """The run processed logs and made no progress: it skipped all of them, or every deletion failed."""
        if self.moved or self.segments:
            return False
        return self.left > 0 or 0 < self.logs <= len(self.missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """`decided_s`, `due_s`: when its cuts were made, and when their grace ends, on the monotonic clock."""

    cuts: tuple[Cut, ...]
    decided_s: float
    due_s: float
    last: Partition


class Retention:
    """One run. `report` may be read during the run. `remembers`: the run resumes where the last one ended, and records
    its own position. `starts_max`: no log starts later than a person has seen and agreed to."""

    def __init__(
        self,
        lake: Lake,
        *,
        grace_s: float = GRACE_S,
        now_ms: Callable[[], int] = wall_ms,
        progress: Progress = lambda *_: None,
        manifests: ManifestBlocks | None = None,
        remembers: bool = False,
        starts_max: StartsMax | None = None,
    ) -> None:
        self._lake = lake
        self._grace_s = grace_s
        self._starts_max = starts_max
        self._now_ms = now_ms
        self._progress = progress
        self._manifests = manifests or ManifestBlocks(lake.store)
        self._remembers = remembers
        self._waiting: deque[_Batch] = deque()
        self.report = Report()

    async def run(self, names: Iterable[str] | None = None) -> Report:
        """Over these topics, or all. Raises WentBack, EtcdError and StoreError."""
        await self._lake.etcd_history().verify()
        places = partitions_of(await read_topics(self._lake, names))
        if self._remembers:
            places = behind(places, await read_place(self._lake, JOB))
        for at in range(0, len(places), LOGS_PER_BATCH):
            await self._cut(places[at : at + LOGS_PER_BATCH], len(places))
            while self._waiting and self._is_due(self._waiting[0]):
                await self._finish_batch(self._waiting.popleft())
        while self._waiting:
            await self._finish_batch(self._waiting.popleft())
        return self.report

    def _is_due(self, batch: _Batch) -> bool:
        full = sum(len(each.cuts) for each in self._waiting) > LOGS_WAITING_MAX
        return full or not batch.cuts or batch.due_s <= monotonic_s()

    async def _cut(self, some: Sequence[Partition], total: int) -> None:
        found = await move_starts(self._lake, self._manifests, some, self._now_ms, self._starts_max)
        self.report.logs += len(some)
        self.report.moved += sum(cut.moved for cut in found.made)
        self.report.missed |= found.missed
        self._progress("moving log starts", self.report.logs, total)
        now_s = monotonic_s()
        batch = _Batch(cuts=tuple(found.made), decided_s=now_s, due_s=now_s + self._grace_s, last=some[-1])
        self._waiting.append(batch)

    async def _finish_batch(self, batch: _Batch) -> None:
        if batch.cuts:
            self._progress("waiting for reads in flight", 0, 0)
            await asyncio.sleep(batch.due_s - monotonic_s())
            await gather_bounded((self._finish(cut, batch.decided_s) for cut in batch.cuts), LOGS_AT_ONCE)
        if self._remembers:
            await write_place(self._lake, JOB, through(batch.last))

    async def _finish(self, cut: Cut, decided_s: float) -> None:
        try:
            outline = await read_outline(self._lake, cut.topic, cut.partition)
            portion: list[Seg] = []
            async with aclosing(segments_from(self._manifests, outline, outline.meta.swept)) as segments:
                async for seg in segments:
                    if seg.end > cut.start or seg.is_slice:  # a slice goes with its bundle
                        break
                    portion.append(seg)
                    if len(portion) == PORTION:
                        await self._delete(cut, portion, decided_s)
                        portion = []
            if portion:
                await self._delete(cut, portion, decided_s)
        except (ObjectNotFound, Overtaken, UnreadableValue) as trouble:
            # ObjectNotFound: a manifest was replaced during the read. The next run resumes here.
            self.report.missed[cut.name] = str(trouble)

    async def _delete(self, cut: Cut, portion: Sequence[Seg], decided_s: float) -> None:
        doomed = condemned(self._lake, cut.topic, cut.partition, portion)
        fates = await delete_all(self._lake, doomed, decided_s)
        self.report.fates.update(fates)
        pairs = zip(portion, fates[::2], fates[1::2], strict=True)
        gone = [seg for seg, *both in pairs if all(fate.is_over for fate in both)]
        self.report.segments += len(gone)
        self.report.bytes += sum(seg.size + seg.index_size for seg in gone)
        self._progress("deleting segments", self.report.segments, 0)
        upto = replace(cut, start=portion[-1].end)
        left = await sweep(self._lake, self._manifests, upto, {(seg.base, seg.etag) for seg in gone})
        manifests = [Condemned(topic=cut.topic, key=key, etag=None) for key in left]
        self.report.fates.update(await delete_all(self._lake, manifests, decided_s))

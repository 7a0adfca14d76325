"""A round of compaction over a lake: the dirtiest log first, one at a time, group after group in the log's order.

Every group is published by itself, so a round that dies has lost the work of one group, and the next one goes on where
it ended. What was replaced is deleted after a grace for the fetches under way; if the round dies before, a collector of
orphans finds it. Reading and writing keep to a budget in bytes per second. A log that cannot be compacted is reported
with the reason, and the others are not held up.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import Lake, Log, read_lake, read_named
from kafscale.lake.compaction.judge import Source, judge, keys_of
from kafscale.lake.compaction.newest import KEYS_MAX, Newest, NewestBuilder, nothing_newer
from kafscale.lake.compaction.plan import Candidate, Reason, groups, in_turn, is_clean, is_due, survey
from kafscale.lake.compaction.publish import (
    Footing,
    Overtaken,
    discard,
    footing,
    publish,
    upload,
)
from kafscale.lake.compaction.report import Outcome, Report, Tally
from kafscale.lake.compaction.rewrite import Rewritten, rewrite
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.retention.apply import GRACE_S, wall_ms
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.scan import parse
from kafscale.storage.etcd import EtcdError
from kafscale.storage.heads import Seg
from kafscale.storage.keys import index_beside
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed, StoreError

GET_TIMEOUT_S: Final = 60.0
TROUBLE: Final = (CorruptSegment, StoreError, EtcdError, TimeoutError, Overtaken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a round may cost. None: no bound. A round that has no time left ends after the group under way.

    `grace_s`: between the publication and the deletion of what was replaced. None: it is the caller's to delete.
    """

    io_bytes_per_s: int | None = None
    within_ms: int | None = None
    grace_s: float | None = GRACE_S
    keys_max: int = KEYS_MAX


Progress = Callable[[Candidate, Tally], None]
"""Told after each group of a log."""


class Round:
    """`run` it once. `now_ms` is wall time."""

    def __init__(
        self, lake: Lake, bounds: Bounds, progress: Progress, now_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._lake = lake
        self._bounds = bounds
        self._progress = progress
        self._now_ms = now_ms
        self._begun_s = time.monotonic()
        self._paid_until_s = self._begun_s
        self._replaced: deque[tuple[float, list[Condemned]]] = deque()
        self._left = 0

    async def run(self, names: Iterable[str] | None = None) -> Report:
        """Of these topics, or of all. Raises EtcdError and StoreError while the lake cannot be read at all."""
        return await self.over(await read_lake(self._lake, names))

    async def over(self, logs: Iterable[Log]) -> Report:
        """Of these logs, as far as they are due. Raises EtcdError when what was replaced cannot be deleted."""
        candidates = survey(logs, self._now_ms())
        outcomes = []
        for candidate in in_turn(candidates):
            if self._late:
                break
            outcomes.append(await self._compact(candidate))
        if self._bounds.grace_s is not None:
            await self._remove(wait=True)
        return Report(
            outcomes=tuple(outcomes),
            delay_ms=max((each.delay_ms for each in candidates), default=0),
            objects_left=self._left,
            replaced=tuple(condemned for _, some in self._replaced for condemned in some),
        )

    @property
    def _late(self) -> bool:
        within_ms = self._bounds.within_ms
        return within_ms is not None and (time.monotonic() - self._begun_s) * 1000 >= within_ms

    async def _compact(self, candidate: Candidate) -> Outcome:
        tally = Tally()
        begun_s = time.monotonic()
        trouble: BaseException | None = None
        try:
            await self._pass(candidate, tally)
        except TROUBLE as met:
            trouble = met
        took_ms = int((time.monotonic() - begun_s) * 1000)
        return Outcome(candidate=candidate, tally=tally, took_ms=took_ms, trouble=trouble)

    async def _pass(self, candidate: Candidate, tally: Tally) -> None:
        log = candidate.log
        newest = await self._newest(candidate)
        segments = [seg for seg in (*candidate.clean, *candidate.dirty) if seg.end <= newest.end]
        for group in groups(segments, log.topic.segment_bytes):
            if self._late:
                return
            if len(newest.keys) or any(self._wants(seg) for seg in group):
                await self._compact_group(log, group, newest, tally)
                self._progress(candidate, tally)
                await self._remove(wait=False)

    def _wants(self, seg: Seg) -> bool:
        """Whatever the newest keys are."""
        return not is_clean(seg) or is_due(seg, self._now_ms())

    async def _newest(self, candidate: Candidate) -> Newest:
        if candidate.reason is Reason.TOMBSTONES:
            return nothing_newer(candidate.clean[-1].end)
        builder = NewestBuilder(candidate.dirty[0].base, keys_max=self._bounds.keys_max)
        for seg in candidate.dirty:
            source = await self._read(candidate.log, seg)
            records = await asyncio.to_thread(keys_of, source, candidate.log.aborted)
            if not await asyncio.to_thread(builder.add, records, seg.end):
                break
        return await asyncio.to_thread(builder.done)

    async def _compact_group(self, log: Log, group: tuple[Seg, ...], newest: Newest, tally: Tally) -> None:
        before = await footing(self._lake, log)
        sources = [await self._read(log, seg) for seg in group]
        rewritten = await asyncio.to_thread(_rewritten, log, sources, newest, self._now_ms())
        if not rewritten.changed and len(group) == 1 and is_clean(group[0]):
            tally.kept(group)
            return
        seg = await self._publish(log, before, group, rewritten)
        tally.replaced(group, seg)

    async def _publish(self, log: Log, before: Footing, group: tuple[Seg, ...], rewritten: Rewritten) -> Seg:
        seg = await upload(self._lake, log, group, rewritten)
        await self._spend(seg.size)
        try:
            replaced = await publish(self._lake, log, before, group, seg)
        except Overtaken:
            await discard(self._lake, (seg.key, index_beside(seg.key)))
            raise
        grace_s = math.inf if self._bounds.grace_s is None else self._bounds.grace_s
        self._replaced.append((time.monotonic() + grace_s, replaced))
        return seg

    async def _read(self, log: Log, seg: Seg) -> Source:
        try:
            async with asyncio.timeout(GET_TIMEOUT_S):
                data = await self._lake.fetch(log, seg)
        except (ObjectNotFound, PreconditionFailed):
            if await self._is_listed(log, seg):
                raise  # committed and not there: somebody should look
            raise Overtaken(log, "a segment was replaced or deleted before it was read") from None
        await self._spend(len(data))
        return Source(seg=seg, data=data, heads=parse(data, self._lake.key_of(log, seg), seg))

    async def _is_listed(self, log: Log, seg: Seg) -> bool:
        now = await read_named(self._lake, [(log.topic.name, log.partition)])
        return any(
            (each.base, each.key, each.etag) == (seg.base, seg.key, seg.etag)
            for found in now
            for each in (*found.below, *found.segments)
        )

    async def _spend(self, count: int) -> None:
        """What was read or written is paid for in time."""
        rate = self._bounds.io_bytes_per_s
        if rate is None:
            return
        self._paid_until_s = max(self._paid_until_s, time.monotonic()) + count / rate
        await asyncio.sleep(self._paid_until_s - time.monotonic())

    async def _remove(self, *, wait: bool) -> None:
        """Deletes what nobody reads any more."""
        while self._replaced:
            due_s, replaced = self._replaced[0]
            if not wait and due_s > time.monotonic():
                return
            await asyncio.sleep(due_s - time.monotonic())
            self._replaced.popleft()
            self._left += (await delete_all(self._lake, replaced)).count(Fate.FAILED)


def _rewritten(log: Log, sources: Sequence[Source], newest: Newest, now_ms: int) -> Rewritten:
    judged = judge(sources, newest, log.aborted, now_ms)
    return rewrite(judged, now_ms=now_ms, delete_retention_ms=log.topic.delete_retention_ms)

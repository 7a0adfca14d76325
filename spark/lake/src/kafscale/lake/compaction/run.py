"""A round of compaction over a lake: one log at a time, group after group in the order of the log.

Every group is published by itself, so a round that is killed loses the work of one group. If the time of the round is
not enough for a log, its position is recorded (`passes`), and the next round resumes there. Such logs come first, the
one that waits longest before the others, but they get half of the time while other logs are due. Then come the others,
the dirtiest first, and then the recorded ones again. So no log starves another, and every log that has its turn
advances by at least one group. Replaced objects are deleted after a grace for the fetches in flight; if the round is
killed before that, the collection of orphans deletes them. Reads and writes share a budget in bytes per second. A log
that cannot be compacted is reported with the reason, and does not delay the others.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafscale.lake.catalog import Lake, Log, Outline, TopicPartition, read_outline
from kafscale.lake.compaction.due import compacted_places, find_due, in_turn, look
from kafscale.lake.compaction.latest_offsets import KEYS_MAX, LatestOffsets, LatestOffsetsBuilder
from kafscale.lake.compaction.markers import LoneMarkers
from kafscale.lake.compaction.passes import Position, read_pass
from kafscale.lake.compaction.plan import Candidate, Group, Reason, is_clean, is_due
from kafscale.lake.compaction.publish import discard, publish, read_existing, upload
from kafscale.lake.compaction.record_filter import LoadedSegment, filter_records, keys_of
from kafscale.lake.compaction.report import Outcome, Report, Tally
from kafscale.lake.compaction.rewrite import Rewritten, rewrite
from kafscale.lake.compaction.segments import Groups, follow, is_listed
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.retention.apply import GRACE_S
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.scan import parse
from kafscale.log.heads import Seg
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.job_runs import CompactionPass
from kafscale.storage.keys import index_beside
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed, StoreError
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s, wall_ms

GET_TIMEOUT_S: Final = 60.0
TROUBLE: Final = (CorruptSegment, UnreadableValue, StoreError, EtcdError, TimeoutError, Overtaken)
AHEAD_MAX: Final = 8
AHEAD_BYTES_MAX: Final = 32 << 20
"""A segment that is larger than this is read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a round may cost. None: no limit. A round that has no time left ends after the current group.

    `grace_s`: between the publication and the deletion of what was replaced. None: the caller deletes it.
    """

    io_bytes_per_s: int | None = None
    within_ms: int | None = None
    grace_s: float | None = GRACE_S
    keys_max: int = KEYS_MAX


Progress = Callable[[Candidate, Tally], None]
"""Called after each group of a log."""


class Round:
    """Call `run` or `over`, once. `now_ms` is wall time. `pace` replaces the one from the bounds, for tests."""

    def __init__(
        self,
        lake: Lake,
        bounds: Bounds,
        progress: Progress,
        now_ms: Callable[[], int] = wall_ms,
        pace: Pace | None = None,
    ) -> None:
        self._lake = lake
        self._bounds = bounds
        self._progress = progress
        self._now_ms = now_ms
        self._pace = pace or Pace(io_bytes_per_s=bounds.io_bytes_per_s, within_ms=bounds.within_ms)
        self._replaced: deque[tuple[float, float, list[Condemned]]] = deque()  # decided, due
        self._missed: dict[TopicPartition, BaseException] = {}
        self._left = 0

    async def run(self, names: Iterable[str] | None = None) -> Report:
        """Over these topics, or all. Raises EtcdError and StoreError if the lake cannot be read at all."""
        return await self.over(await compacted_places(self._lake, names))

    async def over(self, places: Iterable[TopicPartition]) -> Report:
        """Over those of these logs that are due. Raises WentBack, and EtcdError and StoreError if the history of etcd
        cannot be verified, or if the replaced objects cannot be deleted."""
        await self._lake.etcd_history().verify()
        found = await find_due(self._lake, places, self._now_ms())
        self._missed |= found.missed
        half_s = self._pace.after(0.5)
        outcomes: dict[TopicPartition, Outcome] = {}
        for due, only_half in in_turn(found.due):
            until_s = half_s if only_half else math.inf
            known = outcomes.get(due.place)
            if self._pace.passed(until_s) or (known is not None and known.is_over):
                continue
            outcome = await self._take(due.place, known, until_s)
            if outcome is not None:
                outcomes[due.place] = outcome
        if self._bounds.grace_s is not None:
            await self._remove(wait=True)
        return Report(
            outcomes=tuple(outcomes.values()),
            due=len(found.due),
            missed=self._missed,
            delay_ms=found.delay_ms,
            objects_left=self._left,
            replaced=tuple(condemned for *_, some in self._replaced for condemned in some),
        )

    async def _take(self, place: TopicPartition, before: Outcome | None, until_s: float) -> Outcome | None:
        """None: the log is no longer due, or cannot be read. `before`: what this round already did there."""
        begun_s = monotonic_s()
        try:
            now = await look(self._lake, place, self._now_ms())
        except TROUBLE as met:
            self._missed[place] = met
            return before
        if now is None or now.reason is None:
            return before
        tally = before.tally if before is not None else Tally()
        finished = False
        trouble: BaseException | None = None
        try:
            finished = await self._pass(now, tally, until_s)
        except TROUBLE as met:
            trouble = met
        took_ms = int((monotonic_s() - begun_s) * 1000) + (before.took_ms if before is not None else 0)
        return Outcome(
            candidate=before.candidate if before is not None else now,
            tally=tally,
            took_ms=took_ms,
            trouble=trouble,
            finished=finished,
        )

    async def _pass(self, candidate: Candidate, tally: Tally, until_s: float) -> bool:
        """Whether the pass is complete. It resumes at its position, and advances by at least one group."""
        left = await self._left_pass(candidate)
        newest = await self._newest(candidate, left, self._pace.after(0.5, until_s))
        position = Position(self._lake, candidate.log, begin=left.next if left else 0, end=newest.end)
        try:
            finished = await self._go_through(candidate, newest, tally, position, until_s)
        except TROUBLE:
            await position.leave(self._now_ms())
            raise
        if finished:
            await position.finish(known=left is not None)
        else:
            await position.leave(self._now_ms())
        return finished

    async def _go_through(
        self,
        candidate: Candidate,
        newest: LatestOffsets,
        tally: Tally,
        position: Position,
        until_s: float,
    ) -> bool:
        log = candidate.log
        begin = max(position.begin, log.start)
        begun = False
        markers = LoneMarkers(from_start=begin == log.start and len(newest.keys) > 0)

        def wants(group: Group) -> bool:
            return len(newest.keys) > 0 or any(self._wants(seg) for seg in group)

        outline = await read_outline(self._lake, log.topic, log.partition)
        async with aclosing(follow(self._lake, outline, begin, newest.end)) as segments:
            wanted = Groups(segments, log.topic.segment_bytes, wants)
            async with aclosing(read_ahead(partial(self._read, log), wanted.segments())) as sources:
                while (group := await wanted.next()) is not None:
                    if begun and self._pace.passed(until_s):
                        return False
                    begun = True
                    read = [await anext(sources) for _ in group]
                    await self._compact_group(candidate, group, read, newest, markers, tally)
                    self._progress(candidate, tally)
                    if candidate.reason is not Reason.TOMBSTONES:
                        await position.reached(group, self._now_ms())
                    await self._remove(wait=False)
        return True

    async def _left_pass(self, candidate: Candidate) -> CompactionPass | None:
        """The position of an earlier round, unless others compacted as far since, or only tombstones are due."""
        if candidate.reason is Reason.TOMBSTONES:
            return None
        left = await read_pass(self._lake, candidate.log)
        return left if left is not None and left.end > candidate.dirty.first else None

    def _wants(self, seg: Seg) -> bool:
        """Whether the segment needs a rewrite, whatever the newest keys are."""
        return not is_clean(seg) or is_due(seg, self._now_ms())

    async def _newest(
        self, candidate: Candidate, left: CompactionPass | None, until_s: float
    ) -> LatestOffsets:
        """The newest offsets of the dirty part, up to the end of an unfinished pass, and of at least one segment."""
        if candidate.reason is Reason.TOMBSTONES:
            return LatestOffsetsBuilder(candidate.clean.end).done()
        log, dirty = candidate.log, candidate.dirty
        end = dirty.end if left is None else min(dirty.end, left.end)
        builder = LatestOffsetsBuilder(dirty.first, keys_max=self._bounds.keys_max)
        outline = await read_outline(self._lake, log.topic, log.partition)
        async with (
            aclosing(follow(self._lake, outline, dirty.first, end)) as segments,
            aclosing(read_ahead(partial(self._read, log), segments)) as sources,
        ):
            async for source in sources:
                records = await asyncio.to_thread(keys_of, source, candidate.aborted)
                if not await asyncio.to_thread(builder.add, records, source.seg.end):
                    break
                if self._pace.passed(until_s):
                    break
        return await asyncio.to_thread(builder.done)

    async def _compact_group(
        self,
        candidate: Candidate,
        group: Group,
        sources: Sequence[LoadedSegment],
        newest: LatestOffsets,
        markers: LoneMarkers,
        tally: Tally,
    ) -> None:
        log = candidate.log
        before = await read_existing(self._lake, log)
        rewritten = await asyncio.to_thread(_rewritten, candidate, sources, newest, markers, self._now_ms())
        if not rewritten.changed and len(group) == 1 and is_clean(group[0]):
            tally.kept(group)
            return
        seg = await self._publish(log, before, group, rewritten)
        tally.replaced(group, seg)

    async def _publish(self, log: Log, before: Outline, group: Group, rewritten: Rewritten) -> Seg:
        seg = await upload(self._lake, log, group, rewritten)
        await self._pace.spend(seg.size)
        try:
            replaced = await publish(self._lake, log, before, group, seg)
        except Overtaken as overtaken:
            if not overtaken.in_doubt:
                await discard(self._lake, (seg.key, index_beside(seg.key)))
            raise
        grace_s = math.inf if self._bounds.grace_s is None else self._bounds.grace_s
        now_s = monotonic_s()
        self._replaced.append((now_s, now_s + grace_s, replaced))
        return seg

    async def _read(self, log: Log, seg: Seg) -> LoadedSegment:
        await self._pace.spend(seg.size)
        try:
            async with asyncio.timeout(GET_TIMEOUT_S):
                data = await self._lake.fetch(log, seg)
        except (ObjectNotFound, PreconditionFailed):
            if await is_listed(self._lake, log, seg):
                raise  # committed and missing: damage
            raise Overtaken(log.name, "a segment was replaced or deleted before it was read") from None
        return LoadedSegment(seg=seg, data=data, heads=parse(data, self._lake.place_of(log, seg).name, seg))

    async def _remove(self, *, wait: bool) -> None:
        """Deletes replaced objects whose grace is over."""
        while self._replaced:
            decided_s, due_s, replaced = self._replaced[0]
            if not wait and due_s > monotonic_s():
                return
            await asyncio.sleep(due_s - monotonic_s())
            self._replaced.popleft()
            self._left += (await delete_all(self._lake, replaced, decided_s)).count(Fate.FAILED)


def _rewritten(
    candidate: Candidate,
    sources: Sequence[LoadedSegment],
    newest: LatestOffsets,
    markers: LoneMarkers,
    now_ms: int,
) -> Rewritten:
    judged = filter_records(sources, newest, candidate.aborted, now_ms)
    retention_ms = candidate.log.topic.delete_retention_ms
    return rewrite(judged, markers, now_ms=now_ms, delete_retention_ms=retention_ms)


class Pace:
    """The budget of a round, or of an executor's part of it: bytes per second, and time. None: no bound.

    A moment is a reading of `clock`.
    """

    def __init__(
        self,
        *,
        io_bytes_per_s: int | None,
        within_ms: int | None,
        clock: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = io_bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._paid_until_s = clock()
        self._end_s = math.inf if within_ms is None else clock() + within_ms / 1000

    async def spend(self, count: int) -> None:
        """Waits until the budget covers these bytes. Concurrent callers wait one after another."""
        if self._rate is None:
            return
        self._paid_until_s = max(self._paid_until_s, self._clock()) + count / self._rate
        await self._sleep(self._paid_until_s - self._clock())

    def after(self, share: float, end_s: float = math.inf) -> float:
        """The moment when this share of the time up to `end_s`, or to the end of the round, is used."""
        end_s = min(end_s, self._end_s)
        now_s = self._clock()
        return end_s if math.isinf(end_s) else now_s + max(0.0, end_s - now_s) * share

    def passed(self, moment_s: float) -> bool:
        return self._clock() >= min(moment_s, self._end_s)


async def read_ahead(
    read: Callable[[Seg], Coroutine[Any, Any, LoadedSegment]], segments: AsyncIterator[Seg]
) -> AsyncGenerator[LoadedSegment, None]:
    """Reads the segments in order, and the next ones ahead: bounded in number and bytes.

    Raises what `read` raises, for the segment in turn. The caller closes it; that cancels the reads in flight.
    """
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

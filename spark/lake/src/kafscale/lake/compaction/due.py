"""Which logs of a lake are due for compaction, and their order in a round. Only numbers of each log are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import (
    NEVER,
    Lake,
    TopicPartition,
    partitions_of,
    read_outline,
    read_topic,
    read_topics,
)
from kafscale.lake.compaction.passes import read_pass
from kafscale.lake.compaction.plan import Candidate, Survey
from kafscale.lake.compaction.report import DUE, DuePlan
from kafscale.lake.compaction.segments import follow
from kafscale.lake.lag.positions import read_readers
from kafscale.lake.unread import Going, unread
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.job_runs import CompactionPass
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded

READS_AT_ONCE: Final = 4
SURVEYS_MAX: Final = 5
DAMAGE: Final = (ObjectNotFound, UnreadableValue, Overtaken)
"""Of one log: the others are compacted nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A log that is due. `left`: the position of an unfinished pass."""

    place: TopicPartition
    ratio: float
    left: CompactionPass | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLogs:
    """`delay_ms`: of the log whose dirty records wait longest past `max.compaction.lag.ms`.

    `missed`: logs that cannot be read, and why.
    """

    due: tuple[Due, ...]
    delay_ms: int
    missed: dict[TopicPartition, BaseException]


async def look(lake: Lake, place: TopicPartition, now_ms: int) -> Candidate | None:
    """The log as it is now. None: it is gone, or its topic is not compacted. Raises EtcdError and StoreError,
    UnreadableValue, and Overtaken if others replaced its segments under each of the tries."""
    name, partition = place
    for left in reversed(range(SURVEYS_MAX)):
        topic = await read_topic(lake, name)
        if topic is None or not topic.is_compacted or partition >= topic.partitions:
            return None
        outline = await read_outline(lake, topic, partition)
        survey = Survey(outline.log(()), now_ms)
        try:
            async with aclosing(follow(lake, outline, outline.meta.log_start, NEVER)) as segments:
                async for seg in segments:
                    survey.add(seg)
            return survey.done()
        except Overtaken:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


async def compacted_places(lake: Lake, names: Iterable[str] | None) -> list[TopicPartition]:
    """Of these topics, or of all. Raises EtcdError."""
    topics = [topic for topic in await read_topics(lake, names) if topic.is_compacted]
    return [(topic.name, part) for topic, part in partitions_of(topics)]


async def candidates(
    lake: Lake, names: Iterable[str] | None, now_ms: int
) -> tuple[list[Candidate], dict[TopicPartition, BaseException]]:
    """The logs of these topics, or of all, that are due, the dirtiest first; and those that cannot be read, and why.

    Raises EtcdError and StoreError.
    """
    missed: dict[TopicPartition, BaseException] = {}

    async def one(place: TopicPartition) -> Candidate | None:
        try:
            return await look(lake, place, now_ms)
        except DAMAGE as damage:
            missed[place] = damage
            return None

    found = await gather_bounded(map(one, await compacted_places(lake, names)), READS_AT_ONCE)
    due = [each for each in found if each is not None and each.reason is not None]
    return sorted(due, key=lambda each: (-each.ratio, each.log.topic.name, each.log.partition)), missed


async def due_plan(lake: Lake, names: Iterable[str] | None, now_ms: int) -> DuePlan:
    """Of these topics, or of all: the logs that are due, and the groups that have not read them to the end of what is
    compacted. Raises EtcdError and StoreError."""
    found, missed = await candidates(lake, names, now_ms)
    topics = list({each.log.topic.name: each.log.topic for each in found}.values())
    return DuePlan(
        rows=DUE.rows(found),
        losses=unread(map(_going, found), await read_readers(lake, topics)) if found else [],
        missed={f"{topic}/{partition}": str(missed[topic, partition]) for topic, partition in sorted(missed)},
        places=[*((each.log.topic.name, each.log.partition) for each in found), *sorted(missed)],
    )


def _going(candidate: Candidate) -> Going:
    log = candidate.log
    end = max(candidate.clean.end, candidate.dirty.end)
    return Going(topic=log.topic.name, partition=log.partition, start=log.start, end=end)


async def find_due(lake: Lake, places: Iterable[TopicPartition], now_ms: int) -> DueLogs:
    """Raises EtcdError and StoreError."""

    missed: dict[TopicPartition, BaseException] = {}

    async def one(place: TopicPartition) -> tuple[int, Due | None]:
        try:
            candidate = await look(lake, place, now_ms)
        except DAMAGE as damage:
            missed[place] = damage
            return 0, None
        if candidate is None or candidate.reason is None:
            return 0 if candidate is None else candidate.delay_ms, None
        left = await read_pass(lake, candidate.log)
        return candidate.delay_ms, Due(place=place, ratio=candidate.ratio, left=left)

    seen = await gather_bounded((one(place) for place in places), READS_AT_ONCE)
    return DueLogs(
        due=tuple(due for _, due in seen if due is not None),
        delay_ms=max((delay_ms for delay_ms, _ in seen), default=0),
        missed=missed,
    )


def in_turn(due: Sequence[Due]) -> Iterator[tuple[Due, bool]]:
    """Unfinished logs, the longest waiting first, then the others, the dirtiest first, then the unfinished again. Each
    with whether it may use only the first half of the round. Pure."""
    left = sorted((each for each in due if each.left is not None), key=_left_ms)
    others = sorted((each for each in due if each.left is None), key=lambda each: (-each.ratio, each.place))
    yield from ((each, bool(others)) for each in left)
    yield from ((each, False) for each in (*others, *(left if others else ())))


def _left_ms(due: Due) -> int:
    return due.left.left_ms if due.left is not None else 0

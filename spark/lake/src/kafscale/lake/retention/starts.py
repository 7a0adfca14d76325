"""Retention's first half: log starts move, by the plan, and nothing is deleted.

The laws of `storage.log_starts` hold: a start only grows, never passes the high watermark, and moves by a
compare-and-swap. A race that is lost, or an answer that never came, is no answer: the log is read again and
planned again from what it is by then. A log that cannot be read (a damaged or lost manifest) is passed over and told:
the others must not fill the store for its sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Lake, Log, read_places, read_topics
from kafscale.lake.retention.overtaken import Overtaken
from kafscale.lake.retention.plan import plan, start_after
from kafscale.storage.etcd import EtcdUnknown, Txn, TxnResult
from kafscale.storage.heads import CorruptValue, Seg
from kafscale.storage.log_starts import LogBounds, build_move
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.topics import Topic

MOVES_PER_REQUEST: Final = 50
"""Nested transactions in one request of etcd's, whose metas may have some kilobytes each."""
TRIES_MAX: Final = 8

Place = tuple[Topic, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A log that starts at `start` for good: these segments lie below it as a whole, their objects may go."""

    topic: Topic
    partition: int
    start: int
    segments: tuple[Seg, ...]
    moved: bool  # by this run


@dataclass(slots=True)
class Cuts:
    """Of the logs that have something to delete; `missed`: topic/partition of those passed over, and why."""

    made: list[Cut] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)


async def move_starts(lake: Lake, topics: Iterable[Topic], now_ms: Callable[[], int]) -> Cuts:
    """Raises EtcdError and StoreError."""
    cuts = Cuts()
    places = [(topic, part) for topic in topics for part in range(topic.partitions)]
    for _ in range(TRIES_MAX):
        places = await _try(lake, places, now_ms(), cuts)
        if not places:
            return cuts
        places = await _again(lake, places)
    for topic, partition in places:
        name = f"{topic.name}/{partition}"
        cuts.missed.setdefault(name, str(Overtaken(name, TRIES_MAX)))
    return cuts


async def _try(lake: Lake, places: Sequence[Place], now_ms: int, cuts: Cuts) -> list[Place]:
    """The places that are to be tried again."""
    logs, lost = await _read(lake, places, cuts)
    moving = []
    for log in logs:
        start = start_after(log, plan([log], now_ms))
        if start > log.start:
            moving.append((log, start))
        elif log.below:
            cuts.made.append(_cut(log, log.start, moved=False))
    for at in range(0, len(moving), MOVES_PER_REQUEST):
        some = moving[at : at + MOVES_PER_REQUEST]
        for (log, start), moved in zip(some, await _move(lake, some), strict=True):
            if moved:
                cuts.made.append(_cut(log, start, moved=True))
            else:
                lost.append((log.topic, log.partition))
    return lost


async def _read(lake: Lake, places: Sequence[Place], cuts: Cuts) -> tuple[list[Log], list[Place]]:
    """The logs, all in few requests if all can be read, and the places of those that are to be read again."""
    try:
        return await read_places(lake, places), []
    except (ObjectNotFound, CorruptValue):
        logs, lost = [], []
    for topic, partition in places:
        name = f"{topic.name}/{partition}"
        cuts.missed.pop(name, None)
        try:
            logs += await read_places(lake, [(topic, partition)])
        except ObjectNotFound as gone:  # replaced under the read; or lost, if that goes on
            cuts.missed[name] = str(gone)
            lost.append((topic, partition))
        except CorruptValue as damage:
            cuts.missed[name] = str(damage)
    return logs, lost


async def _move(lake: Lake, moving: Sequence[tuple[Log, int]]) -> list[bool]:
    txns = [build_move(lake.keys, log.topic, log.partition, _bounds(log), start) for log, start in moving]
    try:
        answer = await lake.etcd.txn(Txn(success=tuple(txns)))
    except EtcdUnknown:
        return [False] * len(txns)
    return [isinstance(each, TxnResult) and each.succeeded for each in answer.responses]


def _bounds(log: Log) -> LogBounds:
    return LogBounds(
        next=log.end, head_created=log.head_created, meta=log.meta, meta_revision=log.meta_revision
    )


def _cut(log: Log, start: int, *, moved: bool) -> Cut:
    gone = tuple(seg for seg in (*log.below, *log.segments) if seg.end <= start)
    return Cut(topic=log.topic, partition=log.partition, start=start, segments=gone, moved=moved)


async def _again(lake: Lake, places: Iterable[Place]) -> list[Place]:
    """Under the topics' records of now: a config may have changed, a topic may be gone."""
    topics = {topic.topic_id: topic for topic in await read_topics(lake)}
    return [(topics[topic.topic_id], part) for topic, part in places if topic.topic_id in topics]

"""Retention's first half: log starts move, by the plan, and nothing is deleted.

The laws of `storage.log_starts` hold: a start only grows, never passes the high watermark, and moves by a
compare-and-swap. A race that is lost, or an answer that never came, is no answer: the log is read again and
planned again from what it is by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import Lake, Log, read_places, read_topics
from kafscale.lake.retention.plan import plan, start_after
from kafscale.storage.etcd import EtcdUnknown, Txn, TxnResult
from kafscale.storage.heads import Seg
from kafscale.storage.log_starts import LogBounds, build_move
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.topics import Topic

MOVES_PER_REQUEST: Final = 50
"""Nested transactions in one request of etcd's, whose metas may have some kilobytes each."""
TRIES_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A log that starts at `start` for good: these segments lie below it as a whole, their objects may go."""

    topic: Topic
    partition: int
    start: int
    segments: tuple[Seg, ...]
    moved: bool  # by this run


class Overtaken(Exception):
    """The logs changed under every try; the next run may find them calmer."""

    def __init__(self, places: int) -> None:
        super().__init__(f"{places} logs changed under each of {TRIES_MAX} tries")
        self.places = places


async def move_starts(lake: Lake, topics: Iterable[Topic], now_ms: Callable[[], int]) -> list[Cut]:
    """Cuts of the logs that have something to delete. Raises Overtaken, EtcdError, StoreError."""
    places = [(topic, part) for topic in topics for part in range(topic.partitions)]
    cuts: list[Cut] = []
    for _ in range(TRIES_MAX):
        places = await _try(lake, places, now_ms(), cuts)
        if not places:
            return cuts
        places = await _again(lake, places)
    raise Overtaken(len(places))


async def _try(
    lake: Lake, places: Sequence[tuple[Topic, int]], now_ms: int, cuts: list[Cut]
) -> list[tuple[Topic, int]]:
    """Adds to `cuts`; the places that are to be tried again."""
    try:
        logs = await read_places(lake, places)
    except ObjectNotFound:  # a manifest was replaced under the read
        return list(places)
    moving = []
    for log in logs:
        start = start_after(log, plan([log], now_ms))
        if start > log.start:
            moving.append((log, start))
        elif log.below:
            cuts.append(_cut(log, log.start, moved=False))
    lost = []
    for at in range(0, len(moving), MOVES_PER_REQUEST):
        some = moving[at : at + MOVES_PER_REQUEST]
        for (log, start), moved in zip(some, await _move(lake, some), strict=True):
            if moved:
                cuts.append(_cut(log, start, moved=True))
            else:
                lost.append((log.topic, log.partition))
    return lost


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


async def _again(lake: Lake, places: Iterable[tuple[Topic, int]]) -> list[tuple[Topic, int]]:
    """Under the topics' records of now: a config may have changed, a topic may be gone."""
    topics = {topic.topic_id: topic for topic in await read_topics(lake)}
    return [(topics[topic.topic_id], part) for topic, part in places if topic.topic_id in topics]

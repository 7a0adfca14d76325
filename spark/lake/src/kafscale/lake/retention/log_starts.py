"""Retention's first half: log starts move, by the plan, and nothing is deleted.

The laws of `log.meta_swap` hold: a start only grows, never passes the high watermark, and moves by a
compare-and-swap. If another change came first, the log is read and planned again. A log that cannot be read (a damaged
or lost manifest) is skipped and reported, so that the other logs do not fill the store because of it. Segments are
processed one by one, and none is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Lake, Outline, read_outlines, read_topics
from kafscale.lake.resume import Partition
from kafscale.lake.retention.plan import ExpiryRules, Whole
from kafscale.log.log_starts import build_move
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.meta_swap import Overtaken, send
from kafscale.log.segments import segments_from
from kafscale.storage.etcd.client import Txn, TxnResult
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import Topic

MOVES_PER_REQUEST: Final = 50
"""Nested transactions in one request of etcd's, whose metas may have some kilobytes each."""
LOGS_AT_ONCE: Final = 4

StartsMax = Mapping[tuple[str, int], int]
"""(topic, partition) -> the log start that a run may not pass. A partition that is not in it keeps its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A log that will never start below `start` again. Segments that end at or below it may be deleted."""

    topic: Topic
    partition: int
    start: int
    moved: bool  # by this run

    @property
    def name(self) -> str:
        return f"{self.topic.name}/{self.partition}"


@dataclass(slots=True)
class Cuts:
    """The cuts of logs with something to delete; `missed`: topic/partition of skipped logs, and why."""

    made: list[Cut] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)

    def pass_over(self, topic: Topic, partition: int, why: Exception) -> None:
        self.missed[f"{topic.name}/{partition}"] = str(why)


async def move_starts(
    lake: Lake,
    manifests: ManifestBlocks,
    places: Sequence[Partition],
    now_ms: Callable[[], int],
    starts_max: StartsMax | None = None,
) -> Cuts:
    """`starts_max` None: no limit. Raises WentBack, EtcdError and StoreError."""
    cuts = Cuts()
    for _ in range(TRIES_MAX):
        places = await _try(lake, manifests, places, now_ms(), cuts, starts_max)
        if not places:
            return cuts
        places = await _again(lake, places)
    for topic, partition in places:
        name = f"{topic.name}/{partition}"
        cuts.missed.setdefault(name, str(Overtaken(name)))
    return cuts


async def _try(
    lake: Lake,
    manifests: ManifestBlocks,
    places: Sequence[Partition],
    now_ms: int,
    cuts: Cuts,
    starts_max: StartsMax | None,
) -> list[Partition]:
    """The partitions to try again."""
    moving: list[tuple[Outline, int]] = []
    lost: list[Partition] = []

    async def one(outline: Outline) -> None:
        cuts.missed.pop(outline.name, None)
        try:
            start, has_more = await _new_start(manifests, outline, now_ms)
        except ObjectNotFound as gone:  # replaced during the read; or lost, if it happens in every try
            cuts.missed[outline.name] = str(gone)
            lost.append((outline.topic, outline.partition))
        except UnreadableValue as damage:
            cuts.missed[outline.name] = str(damage)
        else:
            start = _limited(outline, start, starts_max)
            if start > outline.meta.log_start:
                moving.append((outline, start))
            elif has_more:
                cuts.made.append(_cut(outline, start, moved=False))

    outlines = await read_outlines(lake, places, cuts.pass_over)
    await gather_bounded((one(outline) for outline in outlines if outline.head_created), LOGS_AT_ONCE)
    for at in range(0, len(moving), MOVES_PER_REQUEST):
        some = moving[at : at + MOVES_PER_REQUEST]
        for (outline, start), moved in zip(some, await _move(lake, some), strict=True):
            if moved:
                cuts.made.append(_cut(outline, start, moved=True))
            else:
                lost.append((outline.topic, outline.partition))
    return lost


def _limited(outline: Outline, start: int, starts_max: StartsMax | None) -> int:
    if starts_max is None:
        return start
    kept = outline.meta.log_start
    return max(kept, min(start, starts_max.get((outline.topic.name, outline.partition), kept)))


async def _new_start(manifests: ManifestBlocks, outline: Outline, now_ms: int) -> tuple[int, bool]:
    """The new log start, and whether the log begins with a segment below its present start whose objects may still
    exist. If it begins with a slice, nothing can be deleted yet."""
    topic, meta = outline.topic, outline.meta
    start = meta.log_start
    below: bool | None = None
    walk = None
    if topic.deletes_records:
        walk = ExpiryRules(topic, await _whole(manifests, outline), now_ms)
    async with aclosing(segments_from(manifests, outline, meta.swept)) as segments:
        async for seg in segments:
            if seg.end <= meta.log_start:
                below = not seg.is_slice if below is None else below
                if walk is None:
                    break
            elif walk is not None and walk.rule_of(seg):
                start = seg.end
            else:
                break
    return start, bool(below)


async def _whole(manifests: ManifestBlocks, outline: Outline) -> Whole:
    """What the rules need of all segments together. Of a manifest only its digest is read, which is cached."""
    meta = outline.meta
    listed = [seg for seg in outline.tail if seg.end > meta.log_start]
    size = sum(seg.size for seg in listed)
    committed_ms = max((seg.created_ms for seg in listed), default=0)
    by_size = outline.topic.retention_bytes >= 0
    for ref in reversed(meta.chunks):
        if ref.last < meta.log_start or (committed_ms and not by_size):
            break
        if ref.first >= meta.log_start:
            digest = await manifests.digest(ref.key)
            size, committed_ms = size + digest.bytes, max(committed_ms, digest.created_ms)
            continue
        async with aclosing(manifests.listed(ref, meta.log_start)) as segments:
            async for seg in segments:
                size, committed_ms = size + seg.size, max(committed_ms, seg.created_ms)
    return Whole(bytes=size, committed_ms=committed_ms)


async def _move(lake: Lake, moving: Sequence[tuple[Outline, int]]) -> list[bool]:
    txns = [build_move(lake.keys, each.topic, each.partition, each, start) for each, start in moving]
    history = lake.etcd_history()
    sent = await send(lake.etcd, Txn(compare=(await history.fenced(),), success=tuple(txns)))
    if not sent.answer.succeeded:  # the next try verifies the history, and raises if etcd went back
        history.missed()
        return [False] * len(txns)
    return [isinstance(each, TxnResult) and each.succeeded for each in sent.answer.responses]


def _cut(outline: Outline, start: int, *, moved: bool) -> Cut:
    return Cut(topic=outline.topic, partition=outline.partition, start=start, moved=moved)


async def _again(lake: Lake, places: Iterable[Partition]) -> list[Partition]:
    """With the current topic records: a config may have changed, a topic may be gone."""
    topics = {topic.topic_id: topic for topic in await read_topics(lake)}
    return [(topics[topic.topic_id], part) for topic, part in places if topic.topic_id in topics]

"""What is committed: topics, logs and their segments, as etcd and the manifests say at one moment.

Reading takes no lock and tells nobody. A log is read at one revision of etcd, so that segments, start and end belong
together; what is committed later is not in it, and nothing behind the committed end ever is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.storage.etcd import EtcdClient, Range
from kafscale.storage.heads import Aborted, ManifestRef, Meta, Seg, decode_head, decode_meta
from kafscale.storage.keys import Keyspace, index_beside
from kafscale.storage.manifests import decode_manifest
from kafscale.storage.objects import ObjectNotFound, ObjectStore
from kafscale.storage.topics import Topic, TopicState, decode_topic

LOGS_PER_READ = 60
"""Head and meta of each: under etcd's default of 128 operations in a transaction."""
MANIFESTS_AT_ONCE = 8
NEVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A partition's committed records: offsets [start, end), in segments that follow each other without a gap.

    The first segment may begin below `start`: DeleteRecords may put it anywhere.
    """

    topic: Topic
    partition: int
    start: int = 0
    end: int = 0
    unstable: int = NEVER  # offset of the first record of a transaction that is under way
    segments: tuple[Seg, ...] = ()
    below: tuple[Seg, ...] = ()  # all records deleted, the objects not known to be: those may be gone
    meta: Meta = Meta()
    meta_revision: int = 0
    head_created: int = 0

    @property
    def stable_end(self) -> int:
        """Where readers of committed records stop."""
        return min(self.end, self.unstable)

    @property
    def aborted(self) -> tuple[Aborted, ...]:
        """The transactions whose records nobody is to see. Each is told of by the segment with its marker."""
        return tuple(each for seg in self.segments for each in seg.aborted)

    def between(self, first: int, end: int) -> tuple[Seg, ...]:
        """The segments that hold any of these offsets."""
        first, end = max(first, self.start), min(end, self.end)
        return tuple(seg for seg in self.segments if seg.end > first and seg.base < end)


@dataclass(frozen=True, slots=True)
class Lake:
    """A namespace: its etcd, its key layout and its object store."""

    etcd: EtcdClient
    keys: Keyspace
    store: ObjectStore

    def key_of(self, log: Log, seg: Seg) -> str:
        return seg.key or self.keys.segment_key(log.topic.name, log.partition, seg.base)

    def index_key_of(self, log: Log, seg: Seg) -> str:
        return index_beside(self.key_of(log, seg))

    async def fetch(self, log: Log, seg: Seg) -> bytes:
        """The committed bytes. Raises StoreError: ObjectNotFound when retention or a deletion came first."""
        return await self.store.get(self.key_of(log, seg), if_match=seg.etag)


async def read_topics(lake: Lake) -> list[Topic]:
    """Those that are not being deleted, by name."""
    found = await lake.etcd.prefix(lake.keys.topics_prefix())
    topics = [decode_topic(lake.keys.parse_topic(kv.key), kv.value, kv.mod_revision) for kv in found.kvs]
    return sorted((t for t in topics if t.state is TopicState.ACTIVE), key=lambda topic: topic.name)


async def read_logs(lake: Lake, topics: Iterable[Topic]) -> list[Log]:
    """Every partition of these topics, also those that nobody wrote to, by topic and partition."""
    return await read_places(lake, [(topic, part) for topic in topics for part in range(topic.partitions)])


async def read_places(lake: Lake, wanted: Sequence[tuple[Topic, int]]) -> list[Log]:
    """These partitions, in this order. Raises ObjectNotFound when a manifest vanishes under the read."""
    logs: list[Log] = []
    for at in range(0, len(wanted), LOGS_PER_READ):
        logs += await _read_some(lake, wanted[at : at + LOGS_PER_READ])
    return logs


async def _read_some(lake: Lake, wanted: Sequence[tuple[Topic, int]]) -> list[Log]:
    ranges = []
    for topic, partition in wanted:
        ranges.append(Range(lake.keys.head(topic.topic_id, partition)))
        ranges.append(Range(lake.keys.meta(topic.topic_id, partition)))
    found = await lake.etcd.ranges(ranges)
    logs = []
    for number, (topic, partition) in enumerate(wanted):
        heads, metas = found[2 * number].kvs, found[2 * number + 1].kvs
        if not heads:
            logs.append(Log(topic=topic, partition=partition))
            continue
        head = decode_head(heads[0].value)
        meta = decode_meta(metas[0].value) if metas else Meta()
        listed = (*await _listed(lake, meta.chunks), *head.tail)
        logs.append(
            Log(
                topic=topic,
                partition=partition,
                start=meta.log_start,
                end=head.next,
                unstable=head.lso if head.lso < head.next else NEVER,
                segments=tuple(seg for seg in listed if seg.end > meta.log_start),
                below=tuple(seg for seg in listed if meta.swept < seg.end <= meta.log_start),
                meta=meta,
                meta_revision=metas[0].mod_revision if metas else 0,
                head_created=heads[0].create_revision,
            )
        )
    return logs


async def _listed(lake: Lake, chunks: Sequence[ManifestRef]) -> list[Seg]:
    """A manifest that a checkpoint has merged since is gone from the store: its reader begins again."""
    slots = asyncio.Semaphore(MANIFESTS_AT_ONCE)

    async def one(ref: ManifestRef) -> tuple[Seg, ...]:
        async with slots:
            return decode_manifest(await lake.store.get(ref.key)).segments

    found = await asyncio.gather(*(one(ref) for ref in chunks))
    return [seg for segments in found for seg in segments]


async def read_lake(lake: Lake, names: Iterable[str] | None = None, tries: int = 5) -> list[Log]:
    """The logs of these topics, or of all. Raises ObjectNotFound if manifests vanish under each of the tries."""
    chosen = None if names is None else frozenset(names)
    return await _read_standing(
        lake, lambda topic: range(topic.partitions if chosen is None or topic.name in chosen else 0), tries
    )


async def read_named(lake: Lake, places: Iterable[tuple[str, int]], tries: int = 5) -> list[Log]:
    """The logs of these topics' partitions, as far as there are such. Raises ObjectNotFound as `read_lake`."""
    chosen = frozenset(places)
    return await _read_standing(
        lake, lambda topic: [n for n in range(topic.partitions) if (topic.name, n) in chosen], tries
    )


async def _read_standing(lake: Lake, wanted: Callable[[Topic], Iterable[int]], tries: int) -> list[Log]:
    """By topic and partition."""
    for left in reversed(range(tries)):
        places = [(topic, number) for topic in await read_topics(lake) for number in wanted(topic)]
        try:
            return await read_places(lake, places)
        except ObjectNotFound:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def by_place(logs: Iterable[Log]) -> Mapping[tuple[str, int], Log]:
    return {(log.topic.name, log.partition): log for log in logs}

"""Topics, logs and their segments, as etcd and the manifests list them at one moment.

Readers take no lock. A log is read at one revision of etcd, so that its segments, start and end are consistent. It
contains no later commit and nothing after the committed end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from kafscale.lake.unknown import UnknownTopic
from kafscale.log.heads import Aborted, ManifestRef, Meta, Seg
from kafscale.log.isolation import aborted_in
from kafscale.log.manifests import decode_manifest
from kafscale.log.places import Place, place_of
from kafscale.log.state import StoredState, read_state, state_reads
from kafscale.storage.etcd.client import EtcdClient, KeyValue, Range
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectNotFound, ObjectStore
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import Topic, TopicState, decode_topic

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
"""The name of a topic, and one of its partitions."""
PassOver = Callable[[Topic, int, Exception], None]
"""Called for a partition that cannot be read, with the reason."""
LOGS_PER_READ = 60
"""Partitions per transaction. Each needs two reads (head and meta); etcd's default limit is 128 operations."""
NAMED_MAX = 120
"""Topics that are read by their names, in one transaction; of more, all records are read."""
MANIFESTS_AT_ONCE = 8
NEVER = 1 << 62
TRIES_MAX = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A partition's committed records: offsets [start, end), in contiguous segments.

    The first segment may begin below `start`, because DeleteRecords may set the start to any offset.
    """

    topic: Topic
    partition: int
    start: int = 0
    end: int = 0
    lso: int = NEVER  # the last stable offset, if that is below `end`
    segments: tuple[Seg, ...] = ()
    below: tuple[Seg, ...] = ()  # below the log start; their objects may be deleted already
    meta: Meta = Meta()
    meta_revision: int = 0
    head_created: int = 0
    committed_only: bool = True  # what its readers see: nothing open or aborted, or all
    marked_later: tuple[
        Aborted, ...
    ] = ()  # aborted by markers above, in segments that a part of a log leaves out

    @property
    def name(self) -> str:
        return f"{self.topic.name}/{self.partition}"

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        return min(self.end, self.lso)

    @property
    def stable_end(self) -> int:
        """Where its readers stop."""
        return self.last_stable_offset if self.committed_only else self.end

    @property
    def aborted(self) -> tuple[Aborted, ...]:
        """The aborted transactions, which its readers pass over. The segment with the marker lists the transaction."""
        return (*self.marked_later, *aborted_in(self.segments)) if self.committed_only else ()

    def between(self, first: int, end: int) -> tuple[Seg, ...]:
        """The segments that contain any of these offsets."""
        first, end = max(first, self.start), min(end, self.end)
        return tuple(seg for seg in self.segments if seg.end > first and seg.base < end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline(StoredState):
    """The state of a partition's log, without its manifests. `head_created` 0: nothing was ever written."""

    topic: Topic
    partition: int

    @classmethod
    def of(cls, topic: Topic, partition: int, state: StoredState) -> Outline:
        """A meta without a head is what a deletion is about to remove: it lists nothing that may be read."""
        if state.head is None:
            return cls(topic=topic, partition=partition)
        values = {each.name: getattr(state, each.name) for each in fields(state)}
        return cls(topic=topic, partition=partition, **values)

    @property
    def name(self) -> str:
        return f"{self.topic.name}/{self.partition}"

    def log(self, listed: Sequence[Seg]) -> Log:
        """The log of these segments from the manifests and of the head's tail."""
        segments = (*listed, *self.tail)
        return Log(
            topic=self.topic,
            partition=self.partition,
            start=self.meta.log_start,
            end=self.next,
            lso=self.lso,
            segments=tuple(seg for seg in segments if seg.end > self.meta.log_start),
            below=tuple(seg for seg in segments if self.meta.swept < seg.end <= self.meta.log_start),
            meta=self.meta,
            meta_revision=self.meta_revision,
            head_created=self.head_created,
        )


@dataclass(frozen=True, slots=True)
class Lake:
    """A namespace: its etcd, its key layout and its object store. `history`: of the process, if it keeps one."""

    etcd: EtcdClient
    keys: Keyspace
    store: ObjectStore
    history: History | None = None

    def etcd_history(self) -> History:
        """For whatever deletes: nothing is dead in an etcd that went back."""
        return self.history or History(self.etcd, self.keys, self.store)

    def place_of(self, log: Log, seg: Seg) -> Place:
        return place_of(self.keys, log.topic.name, log.partition, seg)

    async def fetch(self, log: Log, seg: Seg) -> bytes:
        """The committed bytes. Raises StoreError: ObjectNotFound if the object was deleted."""
        return await self.place_of(log, seg).read(self.store)


async def read_topics(lake: Lake, names: Iterable[str] | None = None) -> list[Topic]:
    """Of these topics, or of all, those that are not being deleted, by name. A topic with an unreadable record is
    skipped and logged, so its objects are not touched."""
    chosen = None if names is None else frozenset(names)
    topics = []
    for kv in await _topic_records(lake, chosen):
        try:
            topics.append(decode_topic(lake.keys.parse_topic(kv.key), kv.value, kv.mod_revision))
        except UnreadableValue as error:
            logger.error("topic skipped: %s", error)
    active = (t for t in topics if t.state is TopicState.ACTIVE and (chosen is None or t.name in chosen))
    return sorted(active, key=lambda topic: topic.name)


async def _topic_records(lake: Lake, chosen: frozenset[str] | None) -> Sequence[KeyValue]:
    """A few topics are read alone: a search in one topic must not cost more in a cluster of many."""
    if chosen is None or len(chosen) > NAMED_MAX:
        return (await lake.etcd.prefix(lake.keys.topics_prefix())).kvs
    if not chosen:
        return ()
    found = await lake.etcd.ranges([Range(lake.keys.topic(name)) for name in sorted(chosen)])
    return [kv for each in found for kv in each.kvs]


async def check_topics(lake: Lake, names: Iterable[str] | None) -> None:
    """Raises UnknownTopic for the first that does not exist or is being deleted. One that cannot be read exists."""
    for name in names or ():
        try:
            found = await read_topic(lake, name)
        except UnreadableValue:
            continue
        if found is None:
            raise UnknownTopic(name)


async def read_topic(lake: Lake, name: str) -> Topic | None:
    """None: the topic does not exist or is being deleted. Raises EtcdError, UnreadableValue."""
    kv = await lake.etcd.get(lake.keys.topic(name))
    if kv is None:
        return None
    topic = decode_topic(name, kv.value, kv.mod_revision)
    return topic if topic.state is TopicState.ACTIVE else None


async def read_logs(lake: Lake, topics: Iterable[Topic]) -> list[Log]:
    """Every partition of these topics, including empty ones, in their order.

    Raises ObjectNotFound if a manifest is deleted during the read.
    """
    places = partitions_of(topics)
    logs: list[Log] = []
    for at in range(0, len(places), LOGS_PER_READ):
        outlines = await _outline_some(lake, places[at : at + LOGS_PER_READ])
        logs += [outline.log(await _listed(lake, outline.meta.chunks)) for outline in outlines]
    return logs


def partitions_of(topics: Iterable[Topic]) -> list[tuple[Topic, int]]:
    return [(topic, part) for topic in topics for part in range(topic.partitions)]


async def read_outlines(
    lake: Lake, wanted: Sequence[tuple[Topic, int]], pass_over: PassOver | None = None
) -> list[Outline]:
    """These partitions, in this order. Raises EtcdError; UnreadableValue if there is no `pass_over`."""
    found: list[Outline] = []
    for at in range(0, len(wanted), LOGS_PER_READ):
        found += await _outline_some(lake, wanted[at : at + LOGS_PER_READ], pass_over)
    return found


async def read_outline(lake: Lake, topic: Topic, partition: int) -> Outline:
    """Raises EtcdError, UnreadableValue."""
    (outline,) = await read_outlines(lake, [(topic, partition)])
    return outline


async def _outline_some(
    lake: Lake, wanted: Sequence[tuple[Topic, int]], pass_over: PassOver | None = None
) -> list[Outline]:
    reads = [state_reads(lake.keys, topic.topic_id, partition) for topic, partition in wanted]
    found = await lake.etcd.ranges([each for pair in reads for each in pair])
    outlines = []
    for number, (topic, partition) in enumerate(wanted):
        try:
            state = read_state(found[2 * number], found[2 * number + 1])
        except UnreadableValue as damage:
            if pass_over is None:
                raise
            pass_over(topic, partition, damage)
            continue
        outlines.append(Outline.of(topic, partition, state))
    return outlines


async def _listed(lake: Lake, chunks: Sequence[ManifestRef]) -> list[Seg]:
    """A checkpoint may merge and delete a manifest during the read. The read then starts again."""
    found = await gather_bounded((lake.store.get(ref.key) for ref in chunks), MANIFESTS_AT_ONCE)
    return [seg for body in found for seg in decode_manifest(body).segments]


def uncommitted(logs: Iterable[Log]) -> list[Log]:
    """For readers with the isolation level read_uncommitted: all records, but no markers."""
    return [replace(log, committed_only=False) for log in logs]


async def read_lake(lake: Lake, names: Iterable[str] | None = None) -> list[Log]:
    """The logs of these topics, or of all. Raises ObjectNotFound if manifests are deleted during every attempt."""
    chosen = None if names is None else frozenset(names)

    async def read() -> list[Log]:
        return await read_logs(lake, await read_topics(lake, chosen))

    return await while_manifests_are_merged(read)


async def read_log(lake: Lake, topic: Topic, partition: int) -> Log:
    """Raises ObjectNotFound if manifests are deleted during every attempt, EtcdError, UnreadableValue."""

    async def read() -> Log:
        outline = await read_outline(lake, topic, partition)
        return outline.log(await _listed(lake, outline.meta.chunks))

    return await while_manifests_are_merged(read)


async def while_manifests_are_merged(read: Callable[[], Awaitable[T]]) -> T:
    """Reads again if a manifest is gone that etcd named a moment ago. Raises ObjectNotFound in the last try."""
    for left in reversed(range(TRIES_MAX)):
        try:
            return await read()
        except ObjectNotFound:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def by_place(logs: Iterable[Log]) -> Mapping[TopicPartition, Log]:
    return {(log.topic.name, log.partition): log for log in logs}

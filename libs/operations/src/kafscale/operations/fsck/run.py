"""Reads everything that a namespace keeps and collects what does not agree."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from kafscale.log.heads import Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.places import Place, index_of, place_of
from kafscale.log.segment import SegmentError
from kafscale.log.state import read_state, state_reads
from kafscale.log.transactions import Event, events_in, stored_batches
from kafscale.operations.fsck.bundles import BundleCheck, BundleCounts, is_named
from kafscale.operations.fsck.checks import (
    NamedSlice,
    Partition,
    Problem,
    check_index,
    check_offsets,
    check_segment,
    check_slices,
)
from kafscale.operations.fsck.transaction_checks import TransactionWalk, check_stable_offset
from kafscale.operations.fsck.unended import UnendedCheck
from kafscale.operations.sentences import Progress
from kafscale.storage.etcd.client import EtcdClient, Range
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import META_TOPIC_ID, Keyspace, TopicId
from kafscale.storage.objects import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicState, decode_topic
from kafscale.wire.errors import WireError

SEGMENTS_AT_ONCE = 8


@dataclass(slots=True)
class Verdict:
    """The result of fsck. The exit code is 0 if it is `clean`."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    deleted: int = 0
    """Committed segments that are completely below their log's start. They are not read."""
    deleted_stored: int = 0
    """Those of them that are still in the store."""
    slices: int = 0
    """Those of `segments` that are slices of bundles: their owners have not settled them yet."""
    slice_bytes: int = 0
    orphans: list[str] = field(default_factory=list)
    bundles: BundleCounts = field(default_factory=BundleCounts)
    problems: list[Problem] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.problems


class Fsck:
    """One run over one namespace. Raises EtcdError or StoreError if etcd or the store cannot be read.

    With `names` only these topics are checked. What belongs to no topic is left out then: bundles that no head names,
    heads without a topic.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        store: ObjectStore,
        progress: Progress,
        names: Collection[str] | None = None,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._progress = progress
        self._names = None if names is None else frozenset(names)
        self._unended = UnendedCheck(etcd, keys)
        self.verdict = Verdict()

    async def run(self) -> Verdict:
        went_back = await History(self._etcd, self._keys, self._store).trouble()
        if went_back is not None:
            self._problem("etcd", str(WentBack(went_back)))
        topics = await self._topics()
        if self._names is not None:
            topics = [topic for topic in topics if topic.name in self._names]
        self.verdict.topics = len(topics)
        for topic in topics:
            await self._check_topic(topic)
        self.verdict.problems += await self._unended.run()
        if self._names is not None:
            return self.verdict
        await self._check_strays(topics)
        bundles = BundleCheck(self._etcd, self._keys, self._store, self.verdict.problems, self._progress)
        self.verdict.bundles = bundles.counts
        await bundles.run()
        return self.verdict

    async def _topics(self) -> list[Topic]:
        found = await self._etcd.prefix(self._keys.topics_prefix())
        topics: list[Topic] = []
        for kv in found.kvs:
            try:
                topics.append(decode_topic(self._keys.parse_topic(kv.key), kv.value, kv.mod_revision))
            except UnreadableValue as broken:
                self._problem(kv.key.decode(errors="replace"), str(broken))
        return topics

    async def _check_topic(self, topic: Topic) -> None:
        heads = await self._etcd.prefix(self._keys.heads_prefix(topic.topic_id), keys_only=True)
        partitions = {self._keys.parse_head(kv.key)[1] for kv in heads.kvs}
        referenced: set[str] = set()
        deleted: set[str] = set()
        for partition in sorted(partitions):
            if partition >= topic.partitions:
                self._problem(f"{topic.name}/{partition}", f"the topic has {topic.partitions} partitions")
            referenced |= await self._check_partition(topic, partition, deleted)
        # The listing comes after the heads: an object is uploaded before its commit.
        trees = (self._keys.topic_prefix(topic.name), self._keys.compacted_prefix(topic.topic_id))
        listed = [info.key for tree in trees async for info in self._store.list(tree)]
        left = [key for key in listed if key not in referenced]  # no commit record names them
        self.verdict.deleted += len(deleted)
        self.verdict.deleted_stored += len(deleted.intersection(listed))
        self.verdict.orphans += left
        if topic.state is TopicState.ACTIVE:
            await self._check_headless(topic, left, partitions)

    async def _check_headless(self, topic: Topic, left: Sequence[str], partitions: set[int]) -> None:
        """Reports objects of partitions without a head.

        A head is created before the first upload and deleted with its topic. So objects of this topic without a head
        mean that the head was lost, although they look like orphans.
        """
        for key in left:
            found = self._keys.parse_segment(key)
            if found is None or found.is_index or found.partition in partitions:
                continue
            info = await self._store.head(key)
            if info is None or info.metadata.get(META_TOPIC_ID) != topic.topic_id.hex():
                continue
            if await self._was_there_already(topic, found.partition):
                self._problem(f"{topic.name}/{found.partition}", f"has objects ({key}) and no head in etcd")
            partitions.add(found.partition)

    async def _was_there_already(self, topic: Topic, partition: int) -> bool:
        """Reads again: there is still no head, and the topic was neither deleted nor changed in between."""
        keys = self._keys
        heads, topics = await self._etcd.ranges(
            [Range(keys.head(topic.topic_id, partition)), Range(keys.topic(topic.name))]
        )
        return not heads.kvs and [kv.mod_revision for kv in topics.kvs] == [topic.mod_revision]

    async def _check_partition(self, topic: Topic, partition: int, deleted: set[str]) -> set[str]:
        """The keys of all committed objects. Adds the segments below the log start to `deleted`."""
        name = f"{topic.name}/{partition}"
        part = await self._read(topic, partition, name)
        if part is None:
            return set()
        self.verdict.partitions += 1
        if topic.state is TopicState.ACTIVE:
            self._unended.note(topic, partition, part.head)
        self.verdict.problems += [*check_offsets(part), *check_stable_offset(part), *check_slices(part)]
        visible = [seg for seg in part.segments if seg.end > part.meta.log_start]
        below = part.segments[: len(part.segments) - len(visible)]
        deleted.update(self._places(topic, partition, seg)[0].key for seg in below if not seg.is_slice)
        walk = TransactionWalk(part, visible[0].base if visible else part.head.next)
        done = 0
        for start in range(0, len(visible), SEGMENTS_AT_ONCE):
            chunk = visible[start : start + SEGMENTS_AT_ONCE]
            async with asyncio.TaskGroup() as group:
                checks = [group.create_task(self._check_objects(topic, partition, seg)) for seg in chunk]
            for seg, check in zip(chunk, checks, strict=True):
                where = self._places(topic, partition, seg)[0].name
                self.verdict.problems += walk.take(where, seg, check.result())
            done += len(chunk)
            self._progress(name, done, len(visible))
        self.verdict.problems += walk.finish()
        places = [place for seg in part.segments for place in self._places(topic, partition, seg)]
        return {place.key for place in places if place is not None}

    async def _read(self, topic: Topic, partition: int, name: str) -> Partition | None:
        """Head and meta at one revision, and the segments of the manifests that meta names."""
        of = (topic.topic_id, partition)
        heads, metas = await self._etcd.ranges(state_reads(self._keys, *of))
        manifests = ManifestBlocks(self._store)
        try:
            state = read_state(heads, metas)
            if state.head is None:
                return None  # the topic was deleted meanwhile
            segments: list[Seg] = []
            for chunk in state.chunks:  # all that a manifest lists, whatever the reference to it says
                async with aclosing(manifests.parts(chunk.key)) as parts:
                    segments += [seg async for part in parts for seg in part.segments()]
            if state.meta.epochs_key:
                await manifests.digest(state.meta.epochs_key)
        except (UnreadableValue, ObjectNotFound) as broken:
            self._problem(name, str(broken))
            return None
        return Partition(name=name, head=state.head, meta=state.meta, segments=(*segments, *state.tail))

    def _places(self, topic: Topic, partition: int, seg: Seg) -> tuple[Place, Place | None]:
        place = place_of(self._keys, topic.name, partition, seg)
        return place, index_of(place, seg)

    async def _check_objects(self, topic: Topic, partition: int, seg: Seg) -> list[Event] | None:
        """What its batches begin and end. None: they cannot be read."""
        place, index_place = self._places(topic, partition, seg)
        data = await self._get(place)
        index = None if index_place is None else await self._get(index_place)
        if seg.is_slice and isinstance(data, Problem):
            named = NamedSlice(topic.topic_id, partition, topic.name, seg)
            if not await is_named(self._etcd, self._keys, named):
                return None  # it was settled since, and its bundle deleted
        self._count(seg)
        found = [each for each in (data, index) if isinstance(each, Problem)]
        events: list[Event] | None = None
        if isinstance(data, bytes):
            broken = list(check_segment(place.name, seg, data))
            if not broken:
                events = self._events(place.name, data)
            found += broken
            if index_place is not None and isinstance(index, bytes):
                found += check_index(index_place.name, seg, index, data)
        self.verdict.problems += found
        return events

    def _events(self, where: str, data: bytes) -> list[Event] | None:
        try:
            return list(events_in(stored_batches(data)))
        except (SegmentError, WireError) as broken:
            self._problem(where, str(broken))
            return None

    def _count(self, seg: Seg) -> None:
        self.verdict.segments += 1
        self.verdict.records += seg.records
        self.verdict.bytes += seg.size
        if seg.is_slice:
            self.verdict.slices += 1
            self.verdict.slice_bytes += seg.size

    async def _get(self, place: Place) -> bytes | Problem:
        try:
            return await place.read(self._store)
        except ObjectNotFound:
            return Problem(place.name, f"is committed and not in the store (etag {place.etag})")
        except PreconditionFailed:
            return Problem(place.name, f"is not the object that was committed (etag {place.etag})")

    async def _check_strays(self, topics: list[Topic]) -> None:
        """Reports heads of topics that do not exist: a deletion removes all heads."""
        known = {topic.topic_id for topic in topics}
        heads = await self._etcd.prefix(self._keys.heads_prefix(), keys_only=True)
        strays: set[TopicId] = {self._keys.parse_head(kv.key)[0] for kv in heads.kvs} - known
        if strays:
            now = {topic.topic_id for topic in await self._topics()}  # created since
            for topic_id in strays - now:
                self._problem(topic_id.hex(), "has heads in etcd and no topic record")

    def _problem(self, where: str, what: str) -> None:
        problem = Problem(where, what)
        if problem not in self.verdict.problems:  # a damaged topic is read twice
            self.verdict.problems.append(problem)

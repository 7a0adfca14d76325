"""Which topics there are, and what to write for each. Pure.

The laws. A topic that was deleted does not come back: its deletion has left a mark in the bucket, or a later topic of
its name has objects with higher leader epochs. Configs are only in etcd: a topic that etcd does not know gets none that
could delete a record. A topic whose name nothing shows is reported and left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.operations.rollforward.plan import (
    EPOCHS_SKIPPED,
    Found,
    Known,
    PartitionPlan,
    Place,
    plan_partition,
)
from kafscale.storage.keys import Keyspace, PartitionKey, TopicId
from kafscale.storage.topics import COMPACT, Topic, TopicState

KEEP_ALL: Final = {"retention.ms": "-1"}
"""Without it the default would delete records that are older than a week."""


class NameTaken(Exception):
    """A name that the operator gave would replace a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What etcd holds."""

    topics: tuple[Topic, ...] = ()
    known: Mapping[PartitionKey, Known] = field(default_factory=dict)
    floors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> the highest epoch that any topic of the name used, and the revision of that record."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Key -> why."""
    bad_partitions: frozenset[PartitionKey] = frozenset()
    bad_topics: frozenset[str] = frozenset()
    transactional_ids: int = 0
    pending: int = 0
    """How many transactions have offsets of a group that wait for their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What the object store holds."""

    found: Mapping[PartitionKey, Found] = field(default_factory=dict)
    names: Mapping[TopicId, str] = field(default_factory=dict)
    """Of the topics that have a segment of an ordinary name."""
    deleted: frozenset[TopicId] = frozenset()
    unused: Mapping[str, str] = field(default_factory=dict)
    """Object -> why it cannot be part of a log."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Object -> why nothing is known of the transactions in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """`before` None: it is created. `after` None: it was deleted, and its keys are removed. `floor`: no later topic of
    the name may use an epoch at or below it."""

    before: Topic | None
    after: Topic | None
    floor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`floors`: names of deleted topics that left objects, and the leader epoch to save for each.
    `unnamed`: topics with records that nothing names, and their partitions."""

    partitions: tuple[PartitionPlan, ...] = ()
    topics: tuple[TopicChange, ...] = ()
    names: Mapping[TopicId, str] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    unnamed: Mapping[TopicId, tuple[int, ...]] = field(default_factory=dict)


def plan_cluster(
    keys: Keyspace,
    metadata: Metadata,
    bucket: Bucket,
    *,
    given: Mapping[TopicId, str],
    fresh: Iterator[str],
    now_ms: int,
) -> Plan:
    """`given`: names of topics from the operator. `fresh`: unique ids for new manifests. Raises NameTaken."""
    name_of = _names(metadata, bucket)
    for topic_id, name in given.items():
        others = (each for each, taken in name_of.items() if taken == name and each not in bucket.deleted)
        if name_of.get(topic_id, name) != name or any(other != topic_id for other in others):
            raise NameTaken(f"{topic_id.hex()}={name}: the topic has another name, or the name another topic")
    name_of |= given
    ids: dict[str, set[TopicId]] = {}
    for topic_id, name in name_of.items():
        ids.setdefault(name, set()).add(topic_id)
    planner = _Planner(keys, metadata, bucket, fresh, now_ms)
    for name, candidates in sorted(ids.items()):
        planner.plan(name, candidates)
    return Plan(
        partitions=tuple(planner.partitions),
        topics=tuple(planner.topics),
        names=name_of,
        floors=planner.floors,
        unnamed=_unnamed(bucket, name_of),
    )


class _Planner:
    """Plans one name after another."""

    def __init__(
        self, keys: Keyspace, metadata: Metadata, bucket: Bucket, fresh: Iterator[str], now_ms: int
    ) -> None:
        self._keys = keys
        self._metadata = metadata
        self._bucket = bucket
        self._fresh = fresh
        self._now_ms = now_ms
        self._stored = {topic.name: topic for topic in metadata.topics}
        self._epochs = _epochs(metadata, bucket)
        self.topics: list[TopicChange] = []
        self.partitions: list[PartitionPlan] = []
        self.floors: dict[str, int] = {}

    def plan(self, name: str, candidates: set[TopicId]) -> None:
        """`candidates`: all topics that ever had the name, as far as anything shows."""
        before = self._stored.get(name)
        if name in self._metadata.bad_topics or (
            before is not None and before.state is TopicState.DELETING  # the next admin continues it
        ):
            return
        current = _current(candidates - self._bucket.deleted, before, self._epochs)
        floor = self._floor(name, candidates - {current})
        if before is not None and before.topic_id != current:
            self.topics.append(TopicChange(before=before, after=None, floor=floor))
            before = None
        elif current is None and floor > self._metadata.floors.get(name, (0, 0))[0]:
            self.floors[name] = floor
        if current is not None:
            self._plan_topic(name, current, before, floor)

    def _plan_topic(self, name: str, topic_id: TopicId, before: Topic | None, floor: int) -> None:
        places = (self._metadata.known.keys() | self._bucket.found.keys()) - self._metadata.bad_partitions
        partitions = sorted(partition for each, partition in places if each == topic_id)
        after = self._topic(name, topic_id, before, partitions, floor)
        if after != before:
            self.topics.append(TopicChange(before=before, after=after, floor=floor))
        for partition in partitions:
            place = Place(self._keys, name, topic_id, partition, self._fresh, self._now_ms)
            known = self._metadata.known.get((topic_id, partition), Known())
            found = self._bucket.found.get((topic_id, partition), Found())
            self.partitions.append(plan_partition(place, known, found, after.epoch_floor))

    def _floor(self, name: str, others: Iterable[TopicId]) -> int:
        """The highest epoch that a topic of the name may have used before the current one."""
        older = [self._epochs.get(each, 0) + EPOCHS_SKIPPED for each in others]
        return max([self._metadata.floors.get(name, (0, 0))[0], *older])

    def _topic(
        self, name: str, topic_id: TopicId, before: Topic | None, partitions: Iterable[int], floor: int
    ) -> Topic:
        count = 1 + max(partitions, default=0)
        if before is not None:
            return replace(
                before,
                partitions=max(count, before.partitions),
                epoch_floor=max(floor, before.epoch_floor),
            )
        compacted = any(
            seg.key and seg.records > len(seg.aborted)  # and not only abort markers
            for (each, _), found in self._bucket.found.items()
            if each == topic_id
            for segs in found.manifests.values()
            for seg in segs
        )
        return Topic(
            name=name,
            topic_id=topic_id,
            partitions=count,
            configs={**KEEP_ALL, **({"cleanup.policy": COMPACT} if compacted else {})},
            epoch_floor=floor,
            created_ms=self._now_ms,
        )


def _names(metadata: Metadata, bucket: Bucket) -> dict[TopicId, str]:
    """By the topic's record, else by a head, else by an object."""
    heads = {where[0]: known.head.topic for where, known in metadata.known.items() if known.head is not None}
    return {**bucket.names, **heads, **{topic.topic_id: topic.name for topic in metadata.topics}}


def _epochs(metadata: Metadata, bucket: Bucket) -> dict[TopicId, int]:
    """The highest leader epoch of each topic."""
    epochs = {topic.topic_id: topic.epoch_floor for topic in metadata.topics}
    seen = [(topic_id, found.epoch) for (topic_id, _), found in bucket.found.items()]
    seen += [
        (topic_id, known.head.epoch)
        for (topic_id, _), known in metadata.known.items()
        if known.head is not None
    ]
    for topic_id, epoch in seen:
        epochs[topic_id] = max(epoch, epochs.get(topic_id, 0))
    return epochs


def _current(
    candidates: Iterable[TopicId], before: Topic | None, epochs: Mapping[TopicId, int]
) -> TopicId | None:
    """The newest topic of a name. The epochs of a name never restart, so it has the highest."""
    known = None if before is None else before.topic_id
    return max(candidates, key=lambda each: (epochs.get(each, 0), each == known, each), default=None)


def _unnamed(bucket: Bucket, name_of: Mapping[TopicId, str]) -> dict[TopicId, tuple[int, ...]]:
    found: dict[TopicId, list[int]] = {}
    for (topic_id, partition), each in sorted(bucket.found.items()):
        if topic_id not in name_of and topic_id not in bucket.deleted and each.pieces:
            found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in found.items()}

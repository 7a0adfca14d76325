"""Which topics there are, and what to write for each. Pure.

The laws. A topic that was deleted does not come back: its deletion has left a mark in the bucket, or a later topic of
its name has objects with higher leader epochs. Configs are only in etcd: a topic that etcd does not know gets none that
could delete a record. A topic whose name nothing shows is reported and left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.cli.rollforward.plan import EPOCHS_SKIPPED, Found, Known, PartitionPlan, plan_partition
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import COMPACT, Topic, TopicState

Where = tuple[TopicId, int]
KEEP_ALL: Final = {"retention.ms": "-1"}
"""Without it the default would delete records that are older than a week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What etcd holds."""

    topics: tuple[Topic, ...] = ()
    known: Mapping[Where, Known] = field(default_factory=dict)
    floors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> the highest epoch that any topic of the name used, and the revision of that record."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Key -> why."""
    unreadable_partitions: frozenset[Where] = frozenset()
    unreadable_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What the object store holds."""

    found: Mapping[Where, Found] = field(default_factory=dict)
    names: Mapping[TopicId, str] = field(default_factory=dict)
    """Of the topics that have a segment of an ordinary name."""
    deleted: frozenset[TopicId] = frozenset()
    unused: Mapping[str, str] = field(default_factory=dict)
    """Object -> why it cannot be part of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """`before` None: it is created. `after` None: it was deleted, and its keys are removed."""

    before: Topic | None
    after: Topic | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`floors`: names without a topic whose objects of deleted topics are left, and the epoch to save for each.
    `unnamed`: topics with records that nothing names, and their partitions."""

    partitions: tuple[PartitionPlan, ...] = ()
    topics: tuple[TopicChange, ...] = ()
    names: Mapping[TopicId, str] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    unnamed: Mapping[TopicId, tuple[int, ...]] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        return bool(self.topics or self.floors) or any(plan.head is not None for plan in self.partitions)


def plan_cluster(
    keys: Keyspace,
    metadata: Metadata,
    bucket: Bucket,
    *,
    given: Mapping[TopicId, str],
    names: Iterator[str],
    now_ms: int,
) -> Plan:
    """`given`: names of topics from the operator. `names`: unique ids for new manifests."""
    stored = {topic.name: topic for topic in metadata.topics}
    name_of = {**_names(metadata, bucket), **given}
    epochs = _epochs(metadata, bucket)
    ids: dict[str, set[TopicId]] = {}
    for topic_id, name in name_of.items():
        ids.setdefault(name, set()).add(topic_id)
    changes: list[TopicChange] = []
    plans: list[PartitionPlan] = []
    floors: dict[str, int] = {}
    for name, candidates in sorted(ids.items()):
        before = stored.get(name)
        if name in metadata.unreadable_topics or (before is not None and before.state is TopicState.DELETING):
            continue
        current = _current(candidates - bucket.deleted, before, epochs)
        floor = _floor(metadata, name, candidates, current, epochs)
        if before is not None and before.topic_id != current:
            changes.append(TopicChange(before=before, after=None))
            before = None
        if current is None:
            if floor > metadata.floors.get(name, (0, 0))[0]:
                floors[name] = floor
            continue
        wanted = _wanted(metadata, bucket, current)
        after = _topic(name, current, before, wanted, floor, bucket, now_ms)
        if after != before:
            changes.append(TopicChange(before=before, after=after))
        for partition in wanted:
            plans.append(
                plan_partition(
                    keys,
                    name,
                    current,
                    partition,
                    known=metadata.known.get((current, partition), Known()),
                    found=bucket.found.get((current, partition), Found()),
                    epoch_floor=after.epoch_floor,
                    names=names,
                )
            )
    return Plan(
        partitions=tuple(plans),
        topics=tuple(changes),
        names=name_of,
        floors={
            name: floor for name, floor in floors.items() if not any(_is_of(name, change) for change in changes)
        },
        unnamed=_unnamed(bucket, name_of),
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


def _floor(
    metadata: Metadata,
    name: str,
    candidates: Iterable[TopicId],
    current: TopicId | None,
    epochs: Mapping[TopicId, int],
) -> int:
    """The highest epoch that a topic of the name may have used before the current one."""
    older = [epochs.get(each, 0) + EPOCHS_SKIPPED for each in candidates if each != current]
    return max([metadata.floors.get(name, (0, 0))[0], *older])


def _wanted(metadata: Metadata, bucket: Bucket, topic_id: TopicId) -> list[int]:
    places = (metadata.known.keys() | bucket.found.keys()) - metadata.unreadable_partitions
    return sorted(partition for each, partition in places if each == topic_id)


def _topic(
    name: str,
    topic_id: TopicId,
    before: Topic | None,
    partitions: Iterable[int],
    floor: int,
    bucket: Bucket,
    now_ms: int,
) -> Topic:
    count = 1 + max(partitions, default=0)
    if before is not None:
        return replace(
            before, partitions=max(count, before.partitions), epoch_floor=max(floor, before.epoch_floor)
        )
    compacted = any(
        seg.key
        for (each, _), found in bucket.found.items()
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
        created_ms=now_ms,
    )


def _unnamed(bucket: Bucket, name_of: Mapping[TopicId, str]) -> dict[TopicId, tuple[int, ...]]:
    found: dict[TopicId, list[int]] = {}
    for (topic_id, partition), each in sorted(bucket.found.items()):
        if topic_id not in name_of and topic_id not in bucket.deleted and each.pieces:
            found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in found.items()}


def _is_of(name: str, change: TopicChange) -> bool:
    topic = change.before or change.after
    return topic is not None and topic.name == name

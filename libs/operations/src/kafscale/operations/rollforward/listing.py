"""One listing of a namespace, sorted by what each object is. It is in memory, some hundred bytes for each object."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafscale.operations.sentences import Progress
from kafscale.storage.keys import Keyspace, PartitionKey, TopicId, index_beside
from kafscale.storage.objects import ObjectInfo, ObjectStore
from kafscale.storage.recovery_keys import OwnKind, parse_deletion_mark, parse_own_object

SHOWN_EVERY: Final = 1_000


class Stored(NamedTuple):
    etag: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSegment:
    """A segment with an ordinary name, and its index if there is one."""

    topic: str
    partition: int
    base: int
    key: str
    object: Stored
    index: Stored | None

    @property
    def index_key(self) -> str:
        return index_beside(self.key)


@dataclass(slots=True)
class Listing:
    """`objects`: segments, indexes and compacted segments by key."""

    objects: dict[str, Stored] = field(default_factory=dict)
    trees: defaultdict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    """Topic name -> partition, base offset and key of each segment."""
    manifests: defaultdict[PartitionKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    snapshots: defaultdict[PartitionKey, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    bundles: list[ObjectInfo] = field(default_factory=list)
    deleted: set[TopicId] = field(default_factory=set)

    def segments(self) -> list[TreeSegment]:
        return [
            TreeSegment(
                topic=topic,
                partition=partition,
                base=base,
                key=key,
                object=self.objects[key],
                index=self.objects.get(index_beside(key)),
            )
            for topic, found in sorted(self.trees.items())
            for partition, base, key in sorted(found)
        ]


async def read_listing(store: ObjectStore, keys: Keyspace, progress: Progress) -> Listing:
    """Raises StoreError."""
    listing = Listing()
    count = 0
    async for info in store.list(f"{keys.namespace}/"):
        _sort_in(listing, keys, info)
        count += 1
        if count % SHOWN_EVERY == 0:
            progress("listing objects", count, 0)
    return listing


def _sort_in(listing: Listing, keys: Keyspace, info: ObjectInfo) -> None:
    segment = keys.parse_segment(info.key)
    if segment is not None:
        listing.objects[info.key] = Stored(info.etag, info.size)
        if not segment.is_index:
            listing.trees[segment.topic].append((segment.partition, segment.base, info.key))
        return
    own = parse_own_object(keys, info.key)
    if own is not None:
        where = (own.topic_id, own.partition)
        match own.kind:
            case OwnKind.MANIFEST:
                listing.manifests[where].append(info.key)
            case OwnKind.SNAPSHOT:
                listing.snapshots[where][info.key] = own.offset
            case OwnKind.COMPACTED:
                listing.objects[info.key] = Stored(info.etag, info.size)
        return
    if keys.parse_bundle(info.key) is not None:
        listing.bundles.append(info)
    elif (mark := parse_deletion_mark(keys, info.key)) is not None:
        listing.deleted.add(mark[0])

"""Reads what the bucket holds of each partition.

The laws. A piece is an object that is there, with the etag that its commit record names; without a commit record it is
one whose checksum, offsets and index are right. A segment without the index of the same attempt was never committed. An
object is named with the topic whose id its metadata have: a name may have had other topics before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafscale.log.bundle import Directory
from kafscale.log.heads import Seg
from kafscale.log.manifests import decode_manifest
from kafscale.log.places import read_directory
from kafscale.log.segment import SegmentError
from kafscale.log.transactions import events_in, stored_batches
from kafscale.operations.rollforward.chain import Piece
from kafscale.operations.rollforward.plan import Found
from kafscale.operations.rollforward.segments import Rejected, is_settled, seg_of_slice, seg_of_stored
from kafscale.operations.rollforward.topics import Bucket, Metadata
from kafscale.operations.sentences import Progress
from kafscale.storage.keys import (
    META_ATTEMPT,
    META_EPOCH,
    META_TOPIC_ID,
    TOPIC_ID_BYTES,
    Keyspace,
    PartitionKey,
    TopicId,
    index_beside,
)
from kafscale.storage.objects import ObjectInfo, ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.recovery_keys import OwnKind, parse_deletion_mark, parse_own_object
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.wire.errors import WireError

SHOWN_EVERY: Final = 1_000
"""Objects of the listing."""
READS_AT_ONCE: Final = 16
SEGMENTS_AT_ONCE: Final = 8
"""A segment that no manifest lists is read as a whole: most have 4 MiB or less."""


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


class BucketReader:
    def __init__(self, store: ObjectStore, keys: Keyspace, progress: Progress) -> None:
        self._store = store
        self._keys = keys
        self._progress = progress
        self._listing = Listing()
        self._manifests: defaultdict[PartitionKey, dict[str, tuple[Seg, ...]]] = defaultdict(dict)
        self._pieces: defaultdict[PartitionKey, list[Piece]] = defaultdict(list)
        self._epochs: defaultdict[PartitionKey, int] = defaultdict(int)
        self._transactional: set[PartitionKey] = set()
        self._names: dict[TopicId, str] = {}
        self._unused: dict[str, str] = {}

    async def read(self, metadata: Metadata) -> Bucket:
        """Raises StoreError."""
        self._listing = await read_listing(self._store, self._keys, self._progress)
        await self._read_manifests()
        committed = self._committed(metadata)
        await self._read_trees(committed)
        self._take_compacted(metadata)
        await self._read_bundles(committed)
        where = {*self._pieces, *self._manifests, *self._listing.snapshots, *self._epochs}
        return Bucket(
            found={each: self._found(each, metadata) for each in where},
            names=self._names,
            deleted=frozenset(self._listing.deleted),
            unused=self._unused,
        )

    def _found(self, where: PartitionKey, metadata: Metadata) -> Found:
        known = metadata.known.get(where)
        return Found(
            pieces=tuple(self._pieces[where]),
            manifests=self._manifests[where],
            snapshots=self._listing.snapshots[where],
            epoch=self._epochs[where],
            epochs_kept=known is not None and known.meta.epochs_key in self._listing.manifests[where],
            transactional=where in self._transactional,
        )

    # -- what was committed ------------------------------------------------------------------------

    async def _read_manifests(self) -> None:
        every = [(where, key) for where, keys in self._listing.manifests.items() for key in keys]
        done = 0

        async def one(where: PartitionKey, key: str) -> None:
            nonlocal done
            try:
                manifest = decode_manifest(await self._store.get(key))
            except (UnreadableValue, ObjectNotFound) as broken:
                self._unused[key] = str(broken)
            else:
                self._manifests[where][key] = manifest.segments
                self._note_epochs(where, manifest.segments)
                if manifest.transactional:
                    self._transactional.add(where)
            done += 1
            self._progress("manifests", done, len(every))

        await gather_bounded((one(*each) for each in every), READS_AT_ONCE)

    def _committed(self, metadata: Metadata) -> dict[tuple[str, int], dict[PartitionKey, Seg]]:
        """Commit records by etag and position in the object. Two topics may have objects with equal bytes."""
        found: defaultdict[tuple[str, int], dict[PartitionKey, Seg]] = defaultdict(dict)
        for where, manifests in self._manifests.items():
            for segs in manifests.values():
                for seg in segs:
                    found[seg.etag, 0][where] = seg
        for where, known in metadata.known.items():
            if known.head is not None:
                for seg in known.head.tail:
                    found[seg.etag, seg.position][where] = seg
        return found

    # -- segments with ordinary names ---------------------------------------------------------------

    async def _read_trees(self, committed: dict[tuple[str, int], dict[PartitionKey, Seg]]) -> None:
        """Segments that a commit record names are not read; of each topic and name one is asked for its metadata."""
        confirmed: set[tuple[str, TopicId]] = set()
        unlisted: list[TreeSegment] = []
        for segment in self._listing.segments():
            records = committed.get((segment.object.etag, 0), {})
            for where, seg in records.items():
                if where[1] != segment.partition or seg.base != segment.base or seg.key or seg.is_slice:
                    continue
                if (segment.topic, where[0]) not in confirmed:
                    if await self._topic_id(segment.key) != where[0]:
                        continue
                    confirmed.add((segment.topic, where[0]))
                    self._names[where[0]] = segment.topic
                self._add(where, Piece(seg, committed=True, told=True))
                break
            else:
                unlisted.append(segment)
        done = 0

        async def one(segment: TreeSegment) -> None:
            nonlocal done
            await self._read_segment(segment)
            done += 1
            self._progress("segments that no manifest lists", done, len(unlisted))

        await gather_bounded((one(each) for each in unlisted), SEGMENTS_AT_ONCE)

    async def _topic_id(self, key: str) -> TopicId | None:
        info = await self._store.head(key)
        return None if info is None else _topic_id_in(info)

    async def _read_segment(self, segment: TreeSegment) -> None:
        try:
            await self._add_segment(segment)
        except (SegmentError, WireError, Rejected, ObjectNotFound, PreconditionFailed) as broken:
            self._unused[segment.key] = str(broken)

    async def _add_segment(self, segment: TreeSegment) -> None:
        info = await self._store.head(segment.key)
        topic_id = None if info is None else _topic_id_in(info)
        if info is None or topic_id is None:
            raise Rejected("another program wrote it")
        self._names.setdefault(topic_id, segment.topic)
        where = (topic_id, segment.partition)
        self._epochs[where] = max(self._epochs[where], _epoch_in(info))
        if topic_id in self._listing.deleted:
            return
        index_info = None if segment.index is None else await self._store.head(segment.index_key)
        if index_info is None or index_info.metadata.get(META_ATTEMPT) != info.metadata.get(META_ATTEMPT):
            raise Rejected("it has no index of the same attempt")
        data = await self._store.get(segment.key, if_match=info.etag)
        index = await self._store.get(segment.index_key, if_match=index_info.etag)
        seg = seg_of_stored(segment.base, data, info.etag, index, index_info.etag)
        plain = not any(events_in(stored_batches(data)))
        self._add(where, Piece(seg, committed=is_settled(data), plain=plain))
        if not plain:
            self._transactional.add(where)

    def _take_compacted(self, metadata: Metadata) -> None:
        """Segments with unique names that a manifest lists, or a head; others were never published."""
        listed = [
            (where, seg) for where, some in self._manifests.items() for segs in some.values() for seg in segs
        ]
        listed += [
            (where, seg) for where, known in metadata.known.items() if known.head for seg in known.head.tail
        ]
        taken: set[str] = set()
        for where, seg in listed:
            stored = self._listing.objects.get(seg.key)
            if stored is not None and stored.etag == seg.etag and seg.key not in taken:
                taken.add(seg.key)
                self._add(where, Piece(seg, committed=True, told=True))

    # -- slices -----------------------------------------------------------------------------------

    async def _read_bundles(self, committed: dict[tuple[str, int], dict[PartitionKey, Seg]]) -> None:
        ends = {
            where: max((seg.end for segs in manifests.values() for seg in segs), default=0)
            for where, manifests in self._manifests.items()
        }
        done = 0

        async def one(info: ObjectInfo) -> None:
            nonlocal done
            try:
                directory = await read_directory(self._store, info)
            except (SegmentError, ObjectNotFound, PreconditionFailed) as broken:
                self._unused[info.key] = str(broken)
            else:
                self._take_slices(info, directory, committed, ends)
            done += 1
            self._progress("bundles", done, len(self._listing.bundles))

        await gather_bounded((one(each) for each in self._listing.bundles), READS_AT_ONCE)

    def _take_slices(
        self,
        info: ObjectInfo,
        directory: Directory,
        committed: dict[tuple[str, int], dict[PartitionKey, Seg]],
        ends: dict[PartitionKey, int],
    ) -> None:
        """Slices below the end of the manifests are not kept: segments hold their records."""
        if self._keys.parse_bundle(info.key) != directory.id:
            self._unused[info.key] = f"its header has the id {directory.id.hex()}"
            return
        for entry in directory.entries:
            where = (entry.topic_id, entry.partition)
            self._epochs[where] = max(self._epochs[where], entry.leader_epoch)
            if entry.transactional:
                self._transactional.add(where)
            if entry.topic_id in self._listing.deleted or entry.last < ends.get(where, 0):
                continue
            seg = committed.get((info.etag, entry.position), {}).get(where)
            told = seg is not None and seg.bundle == directory.id
            if seg is None or not told:
                seg = seg_of_slice(entry, info.etag, directory)
            self._add(where, Piece(seg, committed=told, told=told, plain=not entry.transactional))

    # ---------------------------------------------------------------------------------------------

    def _add(self, where: PartitionKey, piece: Piece) -> None:
        self._pieces[where].append(piece)
        self._note_epochs(where, (piece.seg,))

    def _note_epochs(self, where: PartitionKey, segs: Iterable[Seg]) -> None:
        self._epochs[where] = max([self._epochs[where], *(seg.epoch for seg in segs)])


def _epoch_in(info: ObjectInfo) -> int:
    text = info.metadata.get(META_EPOCH, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _topic_id_in(info: ObjectInfo) -> TopicId | None:
    text = info.metadata.get(META_TOPIC_ID, "")
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return None
    return TopicId(found) if len(found) == TOPIC_ID_BYTES else None

"""Objects that nothing names and nothing ever will: found by what etcd says, never by their age.

The laws. A segment below `next` that is not listed can never be committed: offsets below `next` are bound. At or above
`next` it may be on its way, and is left. Uniquely named objects (manifests, producer snapshots, compacted segments) are
listed first; then `gc_seq` in meta is raised; then whatever neither that meta nor the head of that moment names goes.
Raising meta alone fences them all: each is named for the first time by a transaction that compares a revision of meta
that was read before the object's upload began (a checkpoint compares meta for the snapshot's sake too), so no such
transaction can name what was listed any more; and a commit, claim or release only copies the snapshot that its compared
head names. What etcd does not know (topics, partitions, foreign names) is left.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.lake.catalog import Lake, read_topics
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.retention.overtaken import Overtaken
from kafscale.lake.retention.together import together
from kafscale.storage.etcd import Compare, EtcdUnknown, Put, Range, RangeResult, Txn
from kafscale.storage.heads import Head, Meta, Seg, decode_head, decode_meta, encode_meta
from kafscale.storage.keys import OWN_TREE, TopicId, index_beside
from kafscale.storage.manifests import decode_manifest
from kafscale.storage.objects import ObjectInfo, ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

PARTITIONS_AT_ONCE: Final = 8
TRIES_MAX: Final = 8
UNIQUE: Final = ("manifest", "producers", "compacted")
"""Trees below @kafscale that are kept per topic id and partition."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a partition's head and meta name at one revision."""

    next: int
    bases: frozenset[int]  # of segments that stand under the specification's name
    names: frozenset[str]  # unique ones


@dataclass(slots=True)
class Found:
    """What a collection found and did."""

    partitions: int = 0
    orphans: list[Condemned] = field(default_factory=list)
    left: int = 0
    """Objects at or above their log's end: on their way, or to be replaced by the owner."""
    strange: list[str] = field(default_factory=list)
    """Objects in a topic's tree that are no segments of ours."""
    fates: Counter[Fate] = field(default_factory=Counter)
    missed: dict[str, str] = field(default_factory=dict)
    """topic/partition -> why nothing of it was judged."""

    @property
    def stands_still(self) -> bool:
        """Every partition was passed over, or all that was to be deleted failed."""
        failed = self.fates[Fate.FAILED]
        return (failed > 0 and failed == self.fates.total()) or 0 < self.partitions <= len(self.missed)

    @property
    def bytes(self) -> int:
        return sum(orphan.size for orphan in self.orphans)


class Orphans:
    """One collection. `found` may be read while it goes on."""

    def __init__(self, lake: Lake, *, grace_s: float, progress: Progress = lambda *_: None) -> None:
        self._lake = lake
        self._grace_s = grace_s
        self._progress = progress
        self.found = Found()

    async def collect(self, names: Iterable[str] | None = None, *, dry: bool = False) -> Found:
        """Of these topics, or all; `dry` changes nothing, not even `gc_seq`. Raises EtcdError and StoreError."""
        chosen = None if names is None else frozenset(names)
        topics = [t for t in await read_topics(self._lake) if chosen is None or t.name in chosen]
        places = [(topic, part) for topic in topics for part in range(topic.partitions)]
        looks = (self._look(topic, part, len(places), dry) for topic, part in places)
        await together(looks, PARTITIONS_AT_ONCE)
        self.found.orphans.sort(key=lambda orphan: orphan.key)
        if self.found.orphans and not dry:
            # A reader may be at a segment or a manifest that was replaced a moment ago.
            self._progress("waiting for reads under way", 0, 0)
            await asyncio.sleep(self._grace_s)
            self.found.fates.update(await delete_all(self._lake, self.found.orphans))
        return self.found

    async def _look(self, topic: Topic, partition: int, places: int, dry: bool) -> None:
        listed = [info async for info in _unique(self._lake, topic, partition)]
        self.found.partitions += 1
        try:
            known = await _known(self._lake, topic, partition, {info.key for info in listed}, dry)
        except (Overtaken, UnreadableValue) as trouble:
            self.found.missed[f"{topic.name}/{partition}"] = str(trouble)
            return
        self._progress("looking for orphans", self.found.partitions, places)
        if known is None:
            return
        condemned = [info for info in listed if info.key not in known.names]
        tree = self._lake.keys.partition_prefix(topic.name, partition)
        condemned += [info async for info in self._lake.store.list(tree) if self._is_orphan(info, known)]
        self.found.orphans += [
            Condemned(topic=topic, key=info.key, etag=info.etag, size=info.size) for info in condemned
        ]

    def _is_orphan(self, info: ObjectInfo, known: Known) -> bool:
        name = self._lake.keys.parse_segment(info.key)
        if name is None:
            self.found.strange.append(info.key)
            return False
        if name.base >= known.next:
            self.found.left += 1
            return False
        return name.base not in known.bases


async def _unique(lake: Lake, topic: Topic, partition: int) -> AsyncIterator[ObjectInfo]:
    for tree in UNIQUE:
        prefix = f"{lake.keys.namespace}/{OWN_TREE}/{tree}/{topic.topic_id.hex()}/{partition}/"
        async for info in lake.store.list(prefix):
            yield info


async def _known(lake: Lake, topic: Topic, partition: int, listed: set[str], dry: bool) -> Known | None:
    """What is named after the fence, if anything that was listed might go. None: nobody ever wrote there."""
    where = (topic.topic_id, partition)
    reads = (Range(lake.keys.head(*where)), Range(lake.keys.meta(*where)))
    for _ in range(TRIES_MAX):
        heads, metas = await lake.etcd.ranges(reads)
        if not heads.kvs:
            return None
        revision = metas.kvs[0].mod_revision if metas.kvs else 0
        meta = decode_meta(metas.kvs[0].value) if metas.kvs else Meta()
        head = decode_head(heads.kvs[0].value)
        try:
            chunks = await _chunks(lake, meta)
        except ObjectNotFound:  # a manifest was replaced under the read
            continue
        known = _named(lake, head, meta, chunks)
        if dry or listed <= known.names:
            return known
        fenced = replace(meta, gc_seq=meta.gc_seq + 1)
        at_the_fence = await _fence(lake, where, heads.kvs[0].create_revision, revision, fenced)
        if at_the_fence is not None:
            return _named(lake, at_the_fence, fenced, chunks)
    raise Overtaken(f"{topic.name}/{partition}", TRIES_MAX)


async def _fence(
    lake: Lake, where: tuple[TopicId, int], head_created: int, meta_revision: int, fenced: Meta
) -> Head | None:
    """The head as it was when meta was raised; None: meta had changed, or nobody knows."""
    head_key, meta_key = lake.keys.head(*where), lake.keys.meta(*where)
    compare = (
        Compare(head_key, "create", "=", head_created),
        Compare(meta_key, "mod", "=", meta_revision),
    )
    try:
        answer = await lake.etcd.txn(
            Txn(compare=compare, success=(Put(meta_key, encode_meta(fenced)), Range(head_key)))
        )
    except EtcdUnknown:
        return None
    if not answer.succeeded:
        return None
    head = answer.responses[1]
    assert isinstance(head, RangeResult)
    return decode_head(head.kvs[0].value)


async def _chunks(lake: Lake, meta: Meta) -> tuple[Seg, ...]:
    found: list[Seg] = []
    for chunk in meta.chunks:
        found += decode_manifest(await lake.store.get(chunk.key)).segments
    return tuple(found)


def _named(lake: Lake, head: Head, meta: Meta, chunks: Sequence[Seg]) -> Known:
    """Pure. A segment whose objects are known to be gone names nothing: what stands there came later."""
    segments = [seg for seg in (*chunks, *head.tail) if seg.end > meta.swept]
    names = {*(chunk.key for chunk in meta.chunks), meta.epochs_key, head.snap_key}
    for seg in segments:
        if seg.key:
            names |= {seg.key, index_beside(seg.key)}
    return Known(
        next=head.next,
        bases=frozenset(seg.base for seg in segments if not seg.key),
        names=frozenset(names - {""}),
    )

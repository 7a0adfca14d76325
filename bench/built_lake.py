"""A lake of millions of segments without producers: manifests like those of owners' merges, and a store that lists
the segments' objects although they do not exist."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kafscale.lake.catalog import Lake
from kafscale.log.heads import Head, ManifestRef, Meta, Seg, encode_head, encode_meta
from kafscale.log.manifests import Manifest, encode_manifest, ref_to
from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import Doomed, IfAbsent, ObjectInfo, Outcome, StoreConfig, open_store
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import create_topic

PER_SEGMENT: Final = 100
LEVELS: Final = (17_408, 544, 17)
"""Segments per manifest after a log's oldest one."""
WEEK_MS: Final = 7 * 24 * 3_600_000
ORPHAN_EVERY: Final = 50
"""Segments per orphan: an object that no manifest names."""


@dataclass(frozen=True, slots=True)
class Built:
    """A topic's logs, and the segments of each."""

    topic: str
    logs: int
    count: int


class ListedStore:
    """The objects of a store, and those of the built segments until they are deleted."""

    def __init__(self, store: Any, keys: Keyspace, topics: Sequence[Built]) -> None:
        self._store = store
        self._keys = keys
        self._topics = {each.topic: each for each in topics}
        self.deleted = 0
        self._gone_upto = ""
        """The deletion of a topic deletes in the order of its listing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        tree = f"{self._keys.namespace}/@"
        own = [each for each in doomed if each.key.startswith(tree)]
        found = iter(await self._store.delete_many(own) if own else ())
        if len(own) < len(doomed):
            self.deleted += len(doomed) - len(own)
            self._gone_upto = max(each.key for each in doomed if not each.key.startswith(tree))
        return [next(found) if each.key.startswith(tree) else True for each in doomed]

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        _, topic, *rest = prefix.split("/")
        built = self._topics.get(topic)
        if built is None:
            async for info in self._store.list(prefix, start_after=start_after):
                yield info
            return
        if rest and rest[0]:
            chosen, after = [int(rest[0])], start_after
        else:
            chosen, after = sorted(range(built.logs), key=str), max(start_after, self._gone_upto)
        for partition in chosen:
            for info in self._listed(built, partition, after):
                if info.key > after:
                    yield info

    def _listed(self, built: Built, partition: int, after: str) -> Iterator[ObjectInfo]:
        above = self._keys.partition_prefix(built.topic, partition)
        first = 0
        if after.startswith(above):
            first = int(after.removeprefix(f"{above}segment-")[:20]) // PER_SEGMENT
        elif after > above:
            first = built.count
        for number in range(first, built.count):
            name, etag = f"{above}segment-{number * PER_SEGMENT:020d}", f"{number:032x}"
            yield ObjectInfo(key=f"{name}.index", etag=etag, size=28)
            yield ObjectInfo(key=f"{name}.kfs", etag=etag, size=100_000)
            if number % ORPHAN_EVERY == 0:
                name = f"{above}segment-{number * PER_SEGMENT + 1:020d}"
                yield ObjectInfo(key=f"{name}.kfs", etag=etag, size=100_000)


def segments(count: int, expired: int, now_ms: int) -> list[Seg]:
    return [
        Seg(
            base=number * PER_SEGMENT,
            last_delta=PER_SEGMENT - 1,
            size=100_000 + number % 977,
            etag=f"{number:032x}",
            crc32c=(number * 2_654_435_761) & 0xFFFFFFFF,
            index_size=28,
            index_etag=f"{number + 7:032x}",
            epoch=7,
            min_ts=now_ms - (2 * WEEK_MS if number < expired else 3_600_000),
            max_ts=now_ms - (2 * WEEK_MS if number < expired else 3_600_000),
            records=PER_SEGMENT,
            batches=7,
            created_ms=now_ms - 3_600_000,
        )
        for number in range(count)
    ]


async def build(lake: Lake, built: Built, expired: int) -> None:
    """`expired` segments of each log; a group has read half of each log."""
    topic = await create_topic(lake.etcd, lake.keys, built.topic, partitions=built.logs)
    count = built.count
    listed = segments(count, expired, time.time_ns() // 1_000_000)
    cuts = [0, count - sum(LEVELS) - 8]
    for level in LEVELS:
        cuts.append(cuts[-1] + level)
    manifests = [Manifest(segments=tuple(listed[a:b])) for a, b in zip(cuts, cuts[1:], strict=False)]
    bodies = [encode_manifest(each) for each in manifests]
    for partition in range(built.logs):
        refs: list[ManifestRef] = []
        for level, (manifest, body) in enumerate(zip(manifests, bodies, strict=True)):
            first = manifest.segments[0].base
            key = lake.keys.manifest_key(topic.topic_id, partition, first, f"{level:032x}")
            await lake.store.put(key, [body], condition=IfAbsent())
            refs.append(ref_to(key, manifest, 3 - level))
        head = Head(
            epoch=7,
            topic=built.topic,
            next=count * PER_SEGMENT,
            lso=count * PER_SEGMENT,
            tail=tuple(listed[-8:]),
        )
        meta = Meta(manifest_end=listed[-8].base, chunks=tuple(refs))
        where = (topic.topic_id, partition)
        commit = CommittedOffset(offset=count * PER_SEGMENT // 2, commit_ms=1)
        group = lake.keys.committed(slot_of("g"), "g", topic.topic_id, partition)
        puts = (
            Put(lake.keys.head(*where), encode_head(head)),
            Put(lake.keys.meta(*where), encode_meta(meta)),
            Put(group, encode_committed(commit)),
        )
        await lake.etcd.txn(Txn(success=puts))


def write_down(folder: Path, topics: Sequence[Built]) -> None:
    (folder / "built.json").write_text(json.dumps([asdict(each) for each in topics]))


async def opened(etcd: str, folder: Path) -> Lake:
    """With the objects of the topics that the folder lists, if any."""
    store = open_store(StoreConfig(kind="dir", directory=folder / "objects"))
    await store.probe()
    keys = Keyspace("scale")
    written = folder / "built.json"
    if written.exists():
        topics = [Built(**each) for each in json.loads(written.read_text())]
        store = ListedStore(store, keys, topics)
    return Lake(EtcdClient.connect([etcd]), keys, store)

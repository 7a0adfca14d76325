"""A cluster whose etcd is lost or goes back in time, with real objects and a real etcd."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.log.heads import Head, Seg, decode_head, decode_meta
from kafscale.log.manifests import decode_manifest
from kafscale.operations.clusters import Cluster
from kafscale.operations.fsck.run import Fsck
from kafscale.operations.rollforward.report import rows, warnings
from kafscale.operations.rollforward.run import Look, carry_out, look
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, decode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

NOW_MS = 1_800_000_000_000


@dataclass
class World:
    etcd: EtcdClient
    keys: Keyspace
    store: MemoryStore

    async def log(
        self, name: str, partition: int = 0, *, topic: Topic | None = None, epoch: int = 1
    ) -> LogBuilder:
        topic = topic or await create_topic(self.etcd, self.keys, name, partitions=2)
        return LogBuilder(self.etcd, self.keys, self.store, topic, partition, epoch=epoch)

    async def saved(self) -> dict[bytes, bytes]:
        return {kv.key: kv.value for kv in (await self.etcd.prefix(self.keys.root())).kvs}

    async def lose(self, saved: dict[bytes, bytes] | None = None) -> None:
        """etcd is empty, or as it was."""
        root = self.keys.root()
        await self.etcd.delete(root, range_end=root[:-1] + b"0")
        for key, value in (saved or {}).items():
            await self.etcd.put(key, value)

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.etcd, self.keys, self.store, ServiceSettings())

    async def look(self, **names: TopicId) -> Look:
        given = {topic_id: name for name, topic_id in names.items()}
        return await look(self.cluster, given, NOW_MS, lambda *_: None)

    async def write(self, seen: Look) -> None:
        await carry_out(self.cluster, seen)

    async def rolled(self, **names: TopicId) -> list[str]:
        """The warnings. fsck is clean, and a second run finds nothing to do."""
        seen = await self.look(**names)
        found = list(warnings(seen.metadata, seen.bucket, seen.plan))
        shown = [row["partition"] for row in rows(seen.metadata, seen.plan) if row["partition"] is not None]
        assert shown == [plan.partition for plan in seen.plan.partitions if plan.head is not None]
        await self.write(seen)
        verdict = await Fsck(self.etcd, self.keys, self.store, lambda *_: None).run()
        assert verdict.problems == [], verdict.problems[:3]
        again = await self.look(**names)
        assert rows(again.metadata, again.plan) == []
        return found

    async def topic(self, name: str) -> Topic | None:
        kv = await self.etcd.get(self.keys.topic(name))
        return None if kv is None else decode_topic(name, kv.value)

    async def head(self, log: LogBuilder) -> Head:
        kv = await self.etcd.get(self.keys.head(log.topic.topic_id, log.partition))
        assert kv is not None
        return decode_head(kv.value)

    async def entries(self, log: LogBuilder) -> list[Seg]:
        """All commit records, as etcd and the manifests list them."""
        kv = await self.etcd.get(self.keys.meta(log.topic.topic_id, log.partition))
        assert kv is not None
        manifests = [
            decode_manifest(await self.store.get(chunk.key)) for chunk in decode_meta(kv.value).chunks
        ]
        return [*(seg for each in manifests for seg in each.segments), *(await self.head(log)).tail]

    async def log_start(self, log: LogBuilder) -> int:
        kv = await self.etcd.get(self.keys.meta(log.topic.topic_id, log.partition))
        assert kv is not None
        return decode_meta(kv.value).log_start


async def filled(world: World, name: str = "orders", *, topic: Topic | None = None) -> LogBuilder:
    """Segments in a manifest, segments in the tail, and slices."""
    log = await world.log(name, topic=topic)
    for _ in range(3):
        await log.append(records(10), records(7))
    await log.checkpoint(keep=1)
    await log.append(records(5))
    await more(log)
    return log


async def more(log: LogBuilder) -> None:
    await log.append_with(batch=records(4))
    await log.append_with(batch=records(6))

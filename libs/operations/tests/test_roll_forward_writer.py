"""What a real produce instance stored survives the loss of etcd, and the next instance goes on with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from kafscale.operations.clusters import Cluster as Opened
from kafscale.operations.fsck.run import Fsck
from kafscale.operations.rollforward.report import warnings
from kafscale.operations.rollforward.run import carry_out, look
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import NO_METADATA, Buffer, Condition, MemoryStore, Metadata
from kafscale.storage.topics import Topic

from services.produce.tests.produce_harness import Cluster, Node, batch, until

PARTITIONS = 3


class Noted(MemoryStore):
    """Remembers what was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: set[str] = set()

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        etag = await super().put(key, body, condition=condition, metadata=metadata)
        self.stored.add(key)
        return etag


@pytest.fixture
async def cluster(etcd_server: EtcdProcess, keyspace: Keyspace) -> AsyncIterator[Cluster]:
    found = Cluster(EtcdClient.connect([etcd_server.endpoint]), keyspace, Noted())
    yield found
    await found.close()


async def lose_etcd(cluster: Cluster, saved: dict[bytes, bytes]) -> None:
    root = cluster.keyspace.root()
    await cluster.etcd.delete(root, range_end=root[:-1] + b"0")
    for key, value in saved.items():
        await cluster.etcd.put(key, value)


async def saved_values(cluster: Cluster) -> dict[bytes, bytes]:
    """Without what is bound to leases, whose time a restored etcd soon ends."""
    found = await cluster.etcd.prefix(cluster.keyspace.root())
    return {kv.key: kv.value for kv in found.kvs if not kv.lease}


async def roll_forward(cluster: Cluster, topic: Topic) -> list[str]:
    opened = Opened(cluster.etcd, cluster.keyspace, cluster.store, ServiceSettings())
    seen = await look(opened, {topic.topic_id: topic.name}, 1, lambda *_: None)
    await carry_out(opened, seen)
    verdict = await Fsck(cluster.etcd, cluster.keyspace, cluster.store, lambda *_: None).run()
    assert verdict.problems == []
    return list(warnings(seen.metadata, seen.bucket, seen.plan))


def has_segments(cluster: Cluster, topic: Topic) -> bool:
    assert isinstance(cluster.store, Noted)
    prefix = cluster.keyspace.topic_prefix(topic.name)
    return any(key.startswith(prefix) for key in cluster.store.stored)


async def written(node: Node, topic: Topic, values: range) -> list[bytes]:
    await node.send_all(topic, values)
    return [b"%d" % value for value in values]


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("bundles", [True, False])
async def test_records_and_producers_survive(cluster: Cluster, bundles: bool, has_snapshot: bool) -> None:
    topic = await cluster.topic(partitions=PARTITIONS)
    node = await cluster.node(bundles=bundles, settle_ms=1_000)
    values = await written(node, topic, range(40))
    saved = await saved_values(cluster)
    first = (await node.send(topic, 0, batch(b"first", pid=7, epoch=0, seq=0))).base_offset
    if bundles:
        await until(lambda: has_segments(cluster, topic), "slices are settled")
    values_after = await written(node, topic, range(40, 80))
    await node.kill()

    await lose_etcd(cluster, saved if has_snapshot else {})
    found = await roll_forward(cluster, topic)
    assert not [each for each in found if each.startswith(("GAP", "LEFT OUT"))], found
    for partition in range(PARTITIONS):
        expected = [*values, *([b"first"] if partition == 0 else []), *values_after]
        assert await cluster.log(topic, partition) == expected

    heir = await cluster.node(bundles=bundles)
    repeated = await heir.send(topic, 0, batch(b"first", pid=7, epoch=0, seq=0))
    assert repeated.base_offset == first, "its first answer may have been lost with etcd"
    following = await heir.send(topic, 0, batch(b"second", pid=7, epoch=0, seq=1))
    assert following.base_offset == len(values) + 1 + len(values_after)
    await heir.send_all(topic, range(80, 90))
    assert (await cluster.log(topic, 0))[-11:] == [b"second", *(b"%d" % value for value in range(80, 90))]

"""A bundle names its cluster as soon as etcd does, and never waits long for that."""

from __future__ import annotations

import pytest
from kafscale.produce.puts import AGAIN_MS, Origin
from kafscale.runtime.clock import SystemClock
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import META_CLUSTER, META_OWNER, Keyspace
from kafscale.store.v1.store_pb2 import Cluster as Record
from produce_harness import Cluster


class Steps(SystemClock):
    ms = 0

    def now_ms(self) -> int:
        return self.ms


RECORD = Record(schema=1, cluster_id="id").SerializeToString()


async def test_bundles_of_an_instance_name_it_and_its_cluster(cluster: Cluster) -> None:
    await cluster.etcd.put(cluster.keyspace.cluster(), RECORD)
    topic = await cluster.topic()
    node = await cluster.node()
    await node.send_all(topic, range(1))
    [info] = [info async for info in cluster.store.list(cluster.keyspace.bundles_prefix())]
    found = await cluster.store.head(info.key)
    assert found is not None
    assert (found.metadata[META_OWNER], found.metadata[META_CLUSTER]) == (node.id, "id")


@pytest.mark.parametrize("before", [None, b"\xff\xff"], ids=["none", "unreadable"])
async def test_an_id_that_comes_later_is_found_later(
    etcd: EtcdClient, keyspace: Keyspace, before: bytes | None
) -> None:
    clock = Steps()
    origin = Origin(etcd, keyspace, clock, owner="1/boot")
    if before is not None:
        await etcd.put(keyspace.cluster(), before)
    assert await origin.metadata() == {META_OWNER: "1/boot", META_CLUSTER: ""}
    await etcd.put(keyspace.cluster(), RECORD)
    clock.ms = AGAIN_MS - 1
    assert (await origin.metadata())[META_CLUSTER] == "", "it does not ask etcd for each bundle"
    clock.ms = AGAIN_MS
    assert (await origin.metadata())[META_CLUSTER] == "id"
    await etcd.delete(keyspace.cluster())
    clock.ms = 9 * AGAIN_MS
    assert (await origin.metadata())[META_CLUSTER] == "id"


async def test_an_etcd_that_is_away_stops_no_bundle(keyspace: Keyspace) -> None:
    away = EtcdClient.connect(["http://127.0.0.1:1"])
    try:
        assert (await Origin(away, keyspace, Steps(), owner="1/boot").metadata())[META_CLUSTER] == ""
    finally:
        await away.close()

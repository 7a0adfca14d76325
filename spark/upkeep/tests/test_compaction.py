"""The compaction job reports what it did, and what it could not do."""

from __future__ import annotations

from dataclasses import replace

from kafscale.lake.catalog import Lake
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.exposition import expose
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.upkeep.compaction import CompactionJob


async def filled(etcd: EtcdClient, keys: Keyspace, store: MemoryStore, name: str) -> LogBuilder:
    topic = replace(await create_topic(etcd, keys, name), configs={"cleanup.policy": "compact"})
    await etcd.put(keys.topic(name), encode_topic(topic))
    log = LogBuilder(etcd, keys, store, topic)
    for _ in range(3):
        await log.append(records(10))
    await log.checkpoint(keep=1)
    return log


def told(metrics: Metrics) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in expose(metrics.read()).decode().splitlines() if line[0] != "#")
    return {name.removeprefix("kafscale_upkeep_"): float(value) for name, _, value in lines}


async def test_a_round_is_counted_and_a_log_that_is_damaged_stands_out(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store, metrics = MemoryStore(), Metrics("upkeep")
    await filled(etcd, keyspace, store, "sound")
    damaged = await filled(etcd, keyspace, store, "damaged")
    lost = damaged.segment_key(damaged.segments[0])
    body = await store.get(lost)
    await store.delete(lost)
    job = CompactionJob(Lake(etcd, keyspace, store), metrics, SystemClock(), grace_s=0)
    await job.run()
    found = told(metrics)
    assert found["compacted_logs_total"] == 1
    assert found["compaction_bytes_before_total"] > found["compaction_bytes_after_total"] > 0
    assert found['uncleanable_partitions{reason="ObjectNotFound"}'] == 1
    etag = damaged.segments[0].etag
    assert await store.put(lost, [body]) == etag
    await job.run()
    found = told(metrics)
    assert found["compacted_logs_total"] == 2
    assert found['uncleanable_partitions{reason="ObjectNotFound"}'] == 0


async def test_a_round_in_which_nothing_got_on_stands_still_until_one_does(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store = MemoryStore()
    log = await filled(etcd, keyspace, store, "damaged")
    lost = log.segment_key(log.segments[0])
    body = await store.get(lost)
    await store.delete(lost)
    job = CompactionJob(Lake(etcd, keyspace, store), Metrics("upkeep"), SystemClock(), grace_s=0)
    await job.run()
    assert job.stands_still
    await store.put(lost, [body])
    await job.run()
    assert not job.stands_still

"""The retention job keeps time by a clock that does not leap, and counts what it did; so does the orphans job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kafscale.lake.catalog import Lake
from kafscale.lake.retention.bundles import Sweep
from kafscale.lake.retention.orphans import Orphans
from kafscale.log.heads import decode_meta
from kafscale.runtime.exposition import expose
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.job_runs import JobPlace, decode_job_place
from kafscale.storage.keys import META_CLUSTER, Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import encode_topic
from kafscale.store.v1.store_pb2 import Cluster
from kafscale.testkit.clock import ManualClock
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.upkeep.retention import LEAP_MAX_MS, BundlesJob, OrphansJob, RetentionJob, SteadyClock
from kafscale.wire.records import build_batch

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class SetClock(ManualClock):
    """A wall clock that somebody sets."""

    def set_wall(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms


def test_time_passes_as_it_does_on_the_wall() -> None:
    clock = SetClock(wall_ms=START_MS)
    steady = SteadyClock(clock)
    for _ in range(3):
        clock.advance(HOUR_MS)
        assert steady.look() == clock.wall_ms()


def test_a_clock_set_ahead_is_followed_by_an_hour_a_look_and_one_set_back_not_at_all() -> None:
    clock = SetClock(wall_ms=START_MS)
    steady = SteadyClock(clock)
    clock.set_wall(START_MS + 1_000 * HOUR_MS)
    assert steady.look() == START_MS + LEAP_MAX_MS
    clock.advance(HOUR_MS)
    assert steady.look() == START_MS + 2 * LEAP_MAX_MS + HOUR_MS
    clock.set_wall(START_MS)
    assert steady.look() == START_MS + 2 * LEAP_MAX_MS + HOUR_MS
    clock.set_wall(START_MS + 10 * HOUR_MS)
    clock.advance(8 * HOUR_MS)
    assert steady.look() == START_MS + (2 + 1 + 1 + 8) * HOUR_MS, "no further than eight hours and one"


async def names(store: MemoryStore) -> set[str]:
    """Without the witnesses of etcd's history."""
    return {info.key async for info in store.list("") if "/@kafscale/history/" not in info.key}


async def test_a_run_deletes_what_has_expired_and_counts_it(etcd: EtcdClient, keyspace: Keyspace) -> None:
    store, metrics = MemoryStore(), Metrics("upkeep")
    topic = await create_topic(etcd, keyspace, "t")
    topic = replace(topic, configs={"retention.ms": str(HOUR_MS)})
    await etcd.put(keyspace.topic("t"), encode_topic(topic))
    log = LogBuilder(etcd, keyspace, store, topic)
    for newest_ms in (START_MS - 3 * HOUR_MS, START_MS - 2 * HOUR_MS, START_MS):
        await log.append(records(5, timestamp=newest_ms, step_ms=0))
    lake = Lake(etcd, keyspace, store)
    await RetentionJob(lake, metrics, ManualClock(wall_ms=START_MS), grace_s=0).run()
    kv = await etcd.get(keyspace.meta(topic.topic_id, 0))
    assert kv is not None
    assert decode_meta(kv.value).swept == 10
    left = await names(store)
    assert left == {log.segment_key(log.segments[2]), keyspace.index_key("t", 0, 10)}
    text = expose(metrics.read())
    size = sum(seg.size + seg.index_size for seg in log.segments[:2])
    assert b"kafscale_upkeep_log_starts_moved_total 1.0" in text
    assert b"kafscale_upkeep_retention_deleted_segments_total 2.0" in text
    assert b"kafscale_upkeep_retention_deleted_bytes_total %d.0" % size in text.replace(b"e+", b"?")
    assert b"kafscale_upkeep_retention_missed_logs 0.0" in text


async def test_orphans_are_collected_and_counted(etcd: EtcdClient, keyspace: Keyspace) -> None:
    store, metrics = MemoryStore(), Metrics("upkeep")
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"))
    await log.append(records(5))
    orphan, alien = keyspace.segment_key("t", 0, 3), f"{keyspace.namespace}/t/0/README"
    for key in (orphan, alien):
        await store.put(key, [b"?"])
    collection = partial(Orphans, Lake(etcd, keyspace, store), grace_s=0, named_max=0, remembers=True)
    await OrphansJob(metrics, collection).run()
    assert await names(store) == {
        log.segment_key(log.segments[0]),
        keyspace.index_key("t", 0, 0),
        alien,
    }
    text = expose(metrics.read())
    assert b"kafscale_upkeep_orphans_deleted_objects_total 1.0" in text
    assert b"kafscale_upkeep_strange_objects 1.0" in text
    kv = await etcd.get(keyspace.job_place("orphans"))
    assert kv is not None, "another round goes on where this one ended"
    assert decode_job_place(kv.value) == JobPlace(topic="t", partition=0)


async def test_bundles_are_swept_and_counted(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """The first bundle is settled. The second has a slice that an owner may commit, as far as etcd says."""
    store, metrics, clock = MemoryStore(), Metrics("upkeep"), ManualClock(wall_ms=START_MS)
    await etcd.put(keyspace.cluster(), Cluster(schema=1, cluster_id="c").SerializeToString())
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    seg = await log.append(records(5))
    settled = log.segment_key(seg)
    await log.settle()
    await etcd.put(keyspace.live("produce", 0, "test"), b"here")
    await log.upload([build_batch(records(5))])
    (pinned,) = {info.key async for info in store.list(keyspace.bundles_prefix())} - {settled}
    lake = Lake(etcd, keyspace, store)
    job = BundlesJob(
        metrics, clock, partial(Sweep, lake, min_age_ms=0, keep_ms=0, grace_s=0, now_ms=clock.wall_ms)
    )
    for key in (
        settled,
        pinned,
    ):  # the builder's bundles have slices of other partitions, which no head knows
        await store.put(key, [await store.get(key)], metadata={META_CLUSTER: "c"})
    await job.run()
    assert {info.key async for info in store.list(keyspace.bundles_prefix())} == {pinned}
    text = expose(metrics.read())
    assert b"kafscale_upkeep_swept_bundles_total 1.0" in text
    assert b"kafscale_upkeep_bundles_live 1.0" in text
    assert b"kafscale_upkeep_heads_bumped_total 0.0" in text
    assert b"kafscale_upkeep_bundles_pinned_seconds 1.7e+09" in text, "the builder's bundles are of 1970"

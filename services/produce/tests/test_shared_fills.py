"""Segments on their way into the shared cache: after their commit, and never in the way of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafscale.produce.log.model import Part, PutObject
from kafscale.produce.settings import ProduceSettings
from kafscale.produce.shared_fills import BundleFills, SharedFills
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.shared_cache import SharedCache, open_shared_cache
from kafscale.runtime.shared_cache.entries import PREFIX, ObjectName, entry_key, sealed
from kafscale.runtime.shared_cache.signed_entries import PIECE_BYTES, SignedEntries
from kafscale.storage.keys import BundleId
from kafscale.storage.objects import IfAbsent
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.testkit.redis import RedisServer
from produce_harness import SEGMENTS, Cluster, batch, until

PATIENT_MS = 10_000


async def test_a_committed_segment_is_put_there_as_it_is_in_the_store(
    cluster: Cluster, redis_server: RedisServer
) -> None:
    node = await cluster.node(redis_url=redis_server.url, redis_timeout_ms=PATIENT_MS, **SEGMENTS)
    topic = await cluster.topic()
    for n in range(3):
        assert (await node.send(topic, 0, batch(b"%d" % n))).base_offset == n
    await until(lambda: node.metric("shared_cache_fills_total") == 3, "the fills")
    head = await cluster.head(topic)
    for seg in head.tail:
        key = cluster.keyspace.segment_key(topic.name, 0, seg.base)
        assert redis_server.client.get(entry_key(key, seg.etag)) == sealed([await cluster.store.get(key)])
    assert len(redis_server.client.keys(f"{PREFIX}*")) == 3, "and no index"
    assert node.runtime.budget.used_bytes == 0


@pytest.mark.parametrize("written", [SEGMENTS, {}], ids=["segments", "bundles"])
async def test_with_a_key_what_is_put_there_is_signed(
    cluster: Cluster, redis_server: RedisServer, tmp_path: Path, written: dict[str, int]
) -> None:
    (tmp_path / "keys").write_text(bytes(range(32)).hex())
    node = await cluster.node(
        redis_url=redis_server.url,
        redis_timeout_ms=PATIENT_MS,
        redis_mac_key_file=tmp_path / "keys",
        **written,
    )
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(bytes(PIECE_BYTES)))).base_offset == 0
    await until(lambda: node.metric("shared_cache_fills_total") == 1, "the fill")
    [seg] = (await cluster.head(topic)).tail
    bundles = not written
    assert seg.is_slice == bundles
    keys = cluster.keyspace
    key = keys.bundle_key(BundleId(seg.bundle)) if bundles else keys.segment_key(topic.name, 0, seg.base)
    name, signed = ObjectName(key, seg.etag), SignedEntries([bytes(range(32))])
    value = signed.sealed(name, [await cluster.store.get(key)], in_ranges=bundles)
    assert redis_server.client.get(signed.key(name)) == value
    assert redis_server.client.dbsize() == 1


async def test_what_is_not_committed_is_not_put_there(cluster: Cluster, redis_server: RedisServer) -> None:
    """Its segment is in the store and its index is not, so the commit waits."""
    store = FaultyStore(cluster.store, scripted(("put", ".index", Fault.HOLD)))
    node = await cluster.node(
        store=store, redis_url=redis_server.url, redis_timeout_ms=PATIENT_MS, **SEGMENTS
    )
    topic = await cluster.topic()
    answer = node.send(topic, 0, batch(b"x"))
    await until(lambda: node.metric("put_seconds_count") == 1, "the PUT of the segment is answered")
    assert redis_server.client.dbsize() == 0
    store.release()
    assert (await answer).base_offset == 0
    await until(lambda: node.metric("shared_cache_fills_total") == 1, "the fill")


async def test_a_redis_that_answers_nothing_holds_no_answer(
    cluster: Cluster, redis_server: RedisServer
) -> None:
    node = await cluster.node(redis_url=redis_server.url, redis_timeout_ms=600_000, **SEGMENTS)
    topic = await cluster.topic()
    with redis_server.paused():
        for n in range(20):
            assert (await node.send(topic, 0, batch(b"%d" % n))).base_offset == n
        assert node.metric("shared_cache_fills_total") == 0
    await until(lambda: node.metric("shared_cache_fills_total") == 20, "the fills, late")


async def test_a_bundle_is_put_there_whole_and_once(cluster: Cluster, redis_server: RedisServer) -> None:
    topic = await cluster.topic(partitions=12)
    node = await cluster.node(redis_url=redis_server.url, redis_timeout_ms=PATIENT_MS)
    await node.send_many([(topic, {n: batch(b"claims") for n in range(12)})])
    await until(lambda: node.runtime.budget.used_bytes == 0, "the fills")
    before = node.metric("shared_cache_fills_total")
    await node.send_many([(topic, {n: batch(b"%d" % n) for n in range(12)})])
    await until(lambda: node.metric("shared_cache_fills_total") == before + 1, "the fill")
    tails = [(await cluster.head(topic, n)).tail for n in range(12)]
    [(bundle, etag)] = {(tail[-1].bundle, tail[-1].etag) for tail in tails}
    key = cluster.keyspace.bundle_key(BundleId(bundle))
    assert redis_server.client.get(entry_key(key, etag)) == sealed([await cluster.store.get(key)])
    await until(lambda: node.runtime.budget.used_bytes == 0, "nothing is kept")
    assert node.metric("shared_cache_fills_total") == before + 1


def put(base: int, part: Part = Part.SEGMENT) -> PutObject:
    return PutObject(base=base, part=part, key=f"{base}", body=(b"12345",), condition=IfAbsent(), metadata={})


@asynccontextmanager
async def unreachable_cache(budget: MemoryBudget) -> AsyncIterator[SharedCache]:
    settings = ProduceSettings(redis_url="redis://127.0.0.1:1")  # type: ignore[arg-type]
    tasks = asyncio.TaskGroup()
    async with tasks:
        shared = open_shared_cache(
            settings, clock=SystemClock(), budget=budget, metrics=Metrics("produce"), tasks=tasks
        )
        assert shared is not None
        yield shared
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_an_epoch_that_ends_frees_what_it_kept_and_keeps_nothing_more() -> None:
    budget = MemoryBudget(1_000)
    async with unreachable_cache(budget) as shared:
        fills = SharedFills(shared)
        for base in range(3):
            fills.uploaded(put(base), "etag")
            fills.uploaded(put(base, Part.INDEX), "etag")
        assert budget.used_bytes == 15
        fills.close()
        assert budget.used_bytes == 0
        fills.uploaded(put(3), "etag")
        fills.committed(())
        assert budget.used_bytes == 0


async def test_a_bundle_that_no_partition_will_commit_is_not_kept() -> None:
    budget = MemoryBudget(1_000)
    async with unreachable_cache(budget) as shared:
        fills = BundleFills(shared)
        fills.uploaded(b"nobody's", "key", "etag", (b"12345",), 0)
        assert budget.used_bytes == 0
        fills.uploaded(b"two's", "key", "etag", (b"12345",), 2)
        fills.abandoned(b"two's")
        fills.committed(b"another")
        assert budget.used_bytes == 5
        fills.abandoned(b"two's")
        assert budget.used_bytes == 0
        fills.committed(b"two's")
        fills.abandoned(b"two's")
        assert budget.used_bytes == 0

"""Partitions that are claimed together share the reads of their bundles."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.log.places import Place
from kafscale.produce import recovery
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.recovery import BLOCK_BYTES, BundleBlocks, LogDamaged, Recovery
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore, StoreUnavailable
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from produce_harness import Cluster, batch

PARTITIONS, BUNDLES = 12, 5


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def logs(etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore) -> list[LogBuilder]:
    """Of a killed instance: five bundles, each with a slice of every partition."""
    topic = await create_topic(etcd, keyspace, "t", partitions=PARTITIONS)
    logs = [LogBuilder(etcd, keyspace, store, topic, n) for n in range(PARTITIONS)]
    for _ in range(BUNDLES):
        await logs[0].append_with(*logs[1:], batch=records(3, size=1_000))
    store.requests.clear()
    return logs


def gets(store: FaultyStore) -> int:
    return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(".kfb"))


async def recovered(recovery: Recovery, log: LogBuilder) -> ProducerTable:
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=log.partition)
    return await recovery.producers(id_, log.head, log.meta)


async def test_each_bundle_is_read_once_for_all_partitions_of_a_killed_instance(
    logs: list[LogBuilder], store: FaultyStore, keyspace: Keyspace
) -> None:
    recovery = Recovery(store, keyspace)
    await asyncio.gather(*(recovered(recovery, log) for log in logs[:6]))
    for log in logs[6:]:
        await recovered(recovery, log)
    assert gets(store) == BUNDLES


async def test_a_damaged_transfer_is_not_kept(
    logs: list[LogBuilder], store: FaultyStore, keyspace: Keyspace
) -> None:
    recovery = Recovery(store, keyspace)
    store.plan = scripted(("get", ".kfb", Fault.BIT_FLIP))
    damaged = 0
    for log in logs:
        try:
            await recovered(recovery, log)
        except LogDamaged:
            damaged += 1
            await recovered(recovery, log)
    assert damaged == 1
    assert gets(store) == BUNDLES + 1


async def test_a_bundle_that_is_gone_is_damage_for_each_partition_that_names_it(
    logs: list[LogBuilder], store: FaultyStore, keyspace: Keyspace
) -> None:
    recovery = Recovery(store, keyspace)
    await store.delete(logs[0].segment_key(logs[0].segments[2]))
    found = await asyncio.gather(*(recovered(recovery, log) for log in logs), return_exceptions=True)
    assert {type(each) for each in found} == {LogDamaged}


async def test_the_next_owner_of_a_killed_instance_reads_each_bundle_once(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=PARTITIONS)
    node = await cluster.node()
    for number in range(4):
        await node.send_many([(topic, {n: batch(b"%d" % number) for n in range(PARTITIONS)})])
    named = {seg.bundle for n in range(PARTITIONS) for seg in (await cluster.head(topic, n)).tail}
    await node.kill()
    store = FaultyStore(cluster.store)
    other = await cluster.node(store=store)
    answer = await other.send_many([(topic, {n: batch(b"next") for n in range(PARTITIONS)})])
    assert {part.error_code for part in answer.parts} == {0}
    assert gets(store) == len(named)


class Blocks:
    """A store of one object that counts its reads, and fails while `fails` is set."""

    def __init__(self, size: int) -> None:
        self.data = bytes(n % 251 for n in range(size))
        self.reads: list[int] = []
        self.fails = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, place: Place) -> bytes:
        self.reads.append(place.start // BLOCK_BYTES)
        await self.may_answer.wait()
        if self.fails:
            raise StoreUnavailable(place.key, "503")
        return self.data[place.start : place.end]


async def test_a_slice_over_the_end_of_a_block_is_read_from_both() -> None:
    source = Blocks(2 * BLOCK_BYTES + 500)
    blocks = BundleBlocks(source.get)
    for start, end in ((0, 10), (BLOCK_BYTES - 5, BLOCK_BYTES + 5), (100, 2 * BLOCK_BYTES + 500)):
        assert await blocks.read(Place("k", "e", start, end)) == source.data[start:end]
    assert (
        await blocks.read(Place("k", "e", BLOCK_BYTES - 10, BLOCK_BYTES))
        == source.data[BLOCK_BYTES - 10 : BLOCK_BYTES]
    )
    assert sorted(source.reads) == [0, 1, 2]
    assert await blocks.read(Place("k", "another", 0, 10)) == source.data[:10]
    assert sorted(source.reads) == [0, 0, 1, 2], "another etag is another object"


async def test_no_more_is_kept_than_its_bound_and_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "KEPT_BYTES_MAX", 2 * BLOCK_BYTES)
    source = Blocks(4 * BLOCK_BYTES)
    blocks = BundleBlocks(source.get)
    for number in (0, 1, 0, 2, 0, 1):
        await blocks.read(Place("k", "e", number * BLOCK_BYTES, number * BLOCK_BYTES + 1))
        assert blocks.kept_bytes <= 2 * BLOCK_BYTES
    assert source.reads == [0, 1, 2, 1], "the least recently used goes first"
    monkeypatch.setattr(recovery, "KEPT_S", 0)
    await blocks.read(Place("k", "e", 0, 1))
    async with asyncio.timeout(5):
        while blocks.kept_bytes:
            await asyncio.sleep(0)


async def test_a_caller_that_is_cancelled_leaves_the_block_to_the_next() -> None:
    source = Blocks(BLOCK_BYTES)
    source.may_answer.clear()
    blocks = BundleBlocks(source.get)
    callers = [asyncio.create_task(blocks.read(Place("k", "e", n, n + 1))) for n in range(3)]
    while not source.reads:
        await asyncio.sleep(0)
    callers[0].cancel()
    source.may_answer.set()
    assert await asyncio.gather(*callers[1:]) == [source.data[1:2], source.data[2:3]]
    assert len(source.reads) == 2
    source.fails = True
    blocks.forget(Place("k", "e"))
    with pytest.raises(StoreUnavailable):
        await blocks.read(Place("k", "e", 0, 1))
    assert not blocks._turns

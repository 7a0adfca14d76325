"""Damage harms one partition: a value of it in etcd or in the store cannot be read, and all others are served."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kafscale.log import manifests
from kafscale.log.heads import HEAD_FEATURES, Head, Meta, decode_meta, encode_meta
from kafscale.produce import checkpoint
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.recovery import LogDamaged
from kafscale.storage.etcd.client import Compare, Put, Txn
from kafscale.storage.objects import MemoryStore, ObjectNotFound
from kafscale.storage.schema import SCHEMA
from kafscale.storage.topics import Topic
from kafscale.store.v1 import store_pb2 as pb
from kafscale.wire.errors import ErrorCode
from produce_harness import SEGMENTS, Cluster, batch, until

GARBAGE = b"\xff\xff\xff garbage"


def newer_schema(
    value: bytes, message: pb.Head | pb.Meta | pb.Owner | pb.Manifest | pb.ProducerSnapshot
) -> bytes:
    message.ParseFromString(value)
    message.schema = SCHEMA + HEAD_FEATURES + 1  # of all values a head has the most features
    return message.SerializeToString()


async def written(cluster: Cluster, topic: Topic) -> Head:
    """What an instance that has left leaves of a partition: head, meta, manifest and snapshot."""
    first = await cluster.node(**SEGMENTS)
    for seq in range(30):
        answer = await first.send(topic, 0, batch(b"x", pid=7, epoch=0, seq=seq))
        assert answer.error is ErrorCode.NONE
    await first.drain()
    head = await cluster.head(topic)
    assert head.snap_key, "a hand-over saves a snapshot"
    assert (await cluster.meta(topic)).chunks
    return head


async def three_instances_refuse(cluster: Cluster, topic: Topic, other: Topic) -> None:
    for _ in range(3):
        node = await cluster.node(**SEGMENTS)
        answer = await asyncio.wait_for(node.send(topic, 0, batch(b"y")), 10)
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await node.send(other, 0, batch(b"z"))).error is ErrorCode.NONE
        assert node.is_live
        assert node.metric("damaged_partitions_total") >= 1
        claims = sum(node.metric("claims_total", grounds=name) for name in ("unowned", "mine", "owner_gone"))
        for _ in range(5):
            assert (await node.send(topic, 0, batch(b"y"))).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (
            sum(node.metric("claims_total", grounds=name) for name in ("unowned", "mine", "owner_gone"))
            == claims
        ), "each claim costs an epoch"
        await node.kill()


@pytest.mark.parametrize("what", ["garbage", "newer", "gone"])
async def test_an_unreadable_snapshot_ends_no_instance(cluster: Cluster, what: str) -> None:
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    head = await written(cluster, topic)
    if what == "gone":
        await cluster.store.delete(head.snap_key)
    elif what == "newer":
        found = await cluster.store.get(head.snap_key)
        await cluster.store.put(head.snap_key, [newer_schema(found, pb.ProducerSnapshot())])
    else:
        await cluster.store.put(head.snap_key, [GARBAGE])
    await three_instances_refuse(cluster, topic, other)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("kind", ["head", "meta"])
async def test_an_unreadable_head_or_meta_ends_no_instance_and_stays_as_it_is(
    cluster: Cluster, kind: str, newer: bool
) -> None:
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    await written(cluster, topic)
    key = getattr(cluster.keyspace, kind)(topic.topic_id, 0)
    before = await cluster.etcd.get(key)
    assert before is not None
    message = pb.Head() if kind == "head" else pb.Meta()
    damaged = newer_schema(before.value, message) if newer else GARBAGE
    await cluster.etcd.put(key, damaged)
    await three_instances_refuse(cluster, topic, other)
    after = await cluster.etcd.get(key)
    assert after is not None
    assert after.value == damaged, "nothing is made anew over it"
    if kind == "head":
        await cluster.etcd.put(key, before.value)
        node = await cluster.node(**SEGMENTS)
        assert (await node.send(topic, 0, batch(b"y"))).error is ErrorCode.NONE, "mended, it is served"


async def test_a_head_that_is_damaged_under_its_owner_ends_neither_it_nor_its_other_writers(
    cluster: Cluster,
) -> None:
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    node = await cluster.node(**SEGMENTS)
    for each in (topic, other):
        assert (await node.send(each, 0, batch(b"x"))).error is ErrorCode.NONE
    await cluster.etcd.put(cluster.keyspace.head(topic.topic_id, 0), GARBAGE)
    refused = await node.send(topic, 0, batch(b"y"))
    assert refused.error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    again = await node.send(topic, 0, batch(b"y"), connection=2)
    assert again.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.metric("stepdowns_total", reason="damaged") == 1
    assert (await node.send(other, 0, batch(b"y"))).error is ErrorCode.NONE
    assert node.is_live


async def test_a_meta_that_is_damaged_under_its_owner_stops_that_partition_with_the_true_error(
    cluster: Cluster,
) -> None:
    """Not with time-outs for ever, which is what a tail that nothing empties ends in."""
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    node = await cluster.node(**SEGMENTS)
    assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    await cluster.etcd.put(cluster.keyspace.meta(topic.topic_id, 0), GARBAGE)
    codes = [(await node.send(topic, 0, batch(b"y"), timeout_ms=5_000)).error for _ in range(40)]
    assert codes[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    assert ErrorCode.REQUEST_TIMED_OUT not in codes
    assert (await node.send(other, 0, batch(b"y"))).error is ErrorCode.NONE
    assert node.is_live


@pytest.mark.parametrize("value", [GARBAGE, pb.Owner(schema=2).SerializeToString()])
async def test_an_unreadable_owner_record_is_no_owner_and_the_next_claim_writes_it_anew(
    cluster: Cluster, value: bytes
) -> None:
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    node = await cluster.node(**SEGMENTS)
    assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    key = cluster.keyspace.owner(topic.topic_id, 0)
    await cluster.etcd.put(key, value)
    await until(lambda: key in node.service.owners.unreadable, "the view has met it")
    assert (await node.send(topic, 0, batch(b"y"))).error is ErrorCode.NONE, "the head says who owns it"
    assert (await node.send(other, 0, batch(b"y"))).error is ErrorCode.NONE
    await node.kill()
    again = await cluster.node(**SEGMENTS)
    assert (await again.send(topic, 0, batch(b"z"))).error is ErrorCode.NONE
    owner = await cluster.owner(topic)
    assert owner is not None
    assert owner.owner == again.id
    assert await cluster.log(topic) == [b"x", b"y", b"z"]


@pytest.mark.parametrize("owned", [True, False])
async def test_a_head_that_is_gone_is_not_begun_anew(cluster: Cluster, owned: bool) -> None:
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    node = await cluster.node(**SEGMENTS)
    assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    if not owned:
        await node.drain()
        node = await cluster.node(**SEGMENTS)
    await cluster.etcd.delete(cluster.keyspace.head(topic.topic_id, 0))
    await node.send(topic, 0, batch(b"y"))
    answer = await node.send(topic, 0, batch(b"y"), connection=2)
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert await cluster.etcd.get(cluster.keyspace.head(topic.topic_id, 0)) is None
    assert (await node.send(other, 0, batch(b"z"))).error is ErrorCode.NONE


@pytest.mark.parametrize("owned", [True, False])
async def test_a_meta_that_is_gone_is_not_begun_anew(cluster: Cluster, owned: bool) -> None:
    """A checkpoint on top of nothing would forget every manifest before it."""
    topic = await cluster.topic()
    node = await cluster.node(**SEGMENTS)
    while not (await cluster.meta(topic)).chunks:
        assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    if not owned:
        await node.drain()
        node = await cluster.node(**SEGMENTS)
    key = cluster.keyspace.meta(topic.topic_id, 0)
    await cluster.etcd.delete(key)
    codes = [(await node.send(topic, 0, batch(b"y"), timeout_ms=5_000)).error for _ in range(40)]
    assert codes[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    assert await cluster.etcd.get(key) is None
    assert node.is_live


# -- a log that moves on while it is loaded -------------------------------------------------------


class HeldStore(MemoryStore):
    """Answers that one object is gone, once the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.held = ""

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        if key == self.held:
            self.reached.set()
            await self.go_on.wait()
            raise ObjectNotFound(key, "dropped meanwhile")
        return await super().get(key, if_match=if_match, start=start, end=end)


async def test_a_recovery_that_was_overtaken_calls_nothing_damaged(cluster: Cluster) -> None:
    """Another has claimed meanwhile, and its checkpoint has dropped the snapshot that this one reads."""
    store = cluster.store = HeldStore()
    topic = await cluster.topic()
    store.held = (await written(cluster, topic)).snap_key
    slow = await cluster.node(**SEGMENTS)
    asked = slow.send(topic, 0, batch(b"y"))
    await asyncio.wait_for(store.reached.wait(), 10)
    key = cluster.keyspace.head(topic.topic_id, 0)
    standing = await cluster.etcd.get(key)
    assert standing is not None
    await cluster.etcd.put(key, standing.value)  # as any claim does: the revision is another
    store.go_on.set()
    assert (await asked).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert slow.metric("damaged_partitions_total") == 0


async def test_a_recovery_begins_again_from_a_meta_that_has_moved_on(cluster: Cluster) -> None:
    """Compaction or retention has replaced a manifest; the head does not change by it."""
    topic = await cluster.topic()
    await written(cluster, topic)
    node = await cluster.node(**SEGMENTS)
    seen: list[Meta] = []
    recovery = node.service.ownership._recovery
    load = recovery.producers

    async def producers(id_: PartitionId, head: Head, meta: Meta) -> ProducerTable:
        seen.append(meta)
        if len(seen) == 1:
            key = cluster.keyspace.meta(topic.topic_id, 0)
            found = await cluster.etcd.get(key)
            assert found is not None
            moved = decode_meta(found.value)
            await cluster.etcd.put(key, encode_meta(replace(moved, gc_seq=moved.gc_seq + 1)))
            raise LogDamaged("a manifest", "it is not there")
        return await load(id_, head, meta)

    recovery.producers = producers  # type: ignore[method-assign]
    assert (await node.send(topic, 0, batch(b"y"))).error is ErrorCode.NONE
    assert [meta.gc_seq for meta in seen] == [0, 1]
    assert node.metric("damaged_partitions_total") == 0


# -- merges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["gone", "garbage", "newer", "slow"])
async def test_writes_go_on_when_old_manifests_cannot_be_merged(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(manifests, "MERGE_WIDTH", 4)  # 32 in life: met sooner
    monkeypatch.setattr(checkpoint, "MERGE_TIMEOUT_S", 0.2)
    store = cluster.store = HeldStore()
    topic = await cluster.topic()
    node = await cluster.node(**SEGMENTS)
    sent = 0

    async def write() -> ErrorCode:
        nonlocal sent
        sent += 1
        return (await node.send(topic, 0, batch(b"%d" % sent), timeout_ms=10_000)).error

    while len((await cluster.meta(topic)).chunks) < 2:
        assert await write() is ErrorCode.NONE
    first = (await cluster.meta(topic)).chunks[0]
    if what == "gone":
        await store.delete(first.key)
    elif what == "slow":
        store.held = first.key
    else:
        body = GARBAGE if what == "garbage" else newer_schema(await store.get(first.key), pb.Manifest())
        await store.put(first.key, [body])
    while not any(chunk.level for chunk in (await cluster.meta(topic)).chunks):
        assert await write() is ErrorCode.NONE
        assert sent < 17 * 20
    chunks = (await cluster.meta(topic)).chunks
    assert chunks[0] == first, "what could not be merged is left as it is"
    assert [chunk.level for chunk in chunks].index(1) == 4, "and the list is merged behind it"
    assert node.metric("manifest_merges_failed_total") == 1
    assert len((await cluster.head(topic)).tail) < 32


async def raise_gc_seq(cluster: Cluster, topic: Topic) -> None:
    """As a collector of orphans does. A checkpoint may change meta at the same time."""
    meta_key = cluster.keyspace.meta(topic.topic_id, 0)
    swapped = False
    while not swapped:
        found = await cluster.etcd.get(meta_key)
        assert found is not None
        meta = decode_meta(found.value)
        raised = Put(meta_key, encode_meta(replace(meta, gc_seq=meta.gc_seq + 1)))
        unchanged = Compare(meta_key, "mod", "=", found.mod_revision)
        swapped = (await cluster.etcd.txn(Txn((unchanged,), (raised,)))).succeeded


async def test_a_merge_is_not_named_when_orphans_were_condemned_since_it_began(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MERGE_WIDTH", 4)
    topic = await cluster.topic()
    node = await cluster.node(**SEGMENTS)
    merges = node.service.ownership.tools.checkpointer._merges
    key, into = (topic.topic_id, 0), merges.into

    def not_yet(id_: PartitionId, meta: Meta) -> Meta:
        """No checkpoint takes the merge before the collector came."""
        return meta if key in merges._done else into(id_, meta)

    monkeypatch.setattr(merges, "into", not_yet)
    while key not in merges._done:
        assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    condemned = merges._done[key].ref.key
    await raise_gc_seq(cluster, topic)
    assert condemned not in [chunk.key for chunk in (await cluster.meta(topic)).chunks]
    await cluster.store.delete(condemned)  # as the collector of orphans does
    monkeypatch.setattr(merges, "into", into)
    while not any(chunk.level for chunk in (await cluster.meta(topic)).chunks):
        assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    assert condemned not in [chunk.key for chunk in (await cluster.meta(topic)).chunks]
    await cluster.log(topic)

"""A bundle is lost, and the partition that it names cannot settle."""

from __future__ import annotations

import pytest
from kafscale.log.heads import TAIL_MAX
from kafscale.log.log_starts import build_move, build_read, read_if_unchanged
from kafscale.log.places import place_of
from kafscale.produce.log.model import Want
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.topics import Topic
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, Node, batch, until


@pytest.fixture(autouse=True)
def settling_is_tried_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.produce.log.settling.RETRY_FIRST_MS", 50)
    monkeypatch.setattr("kafscale.produce.log.settling.RETRY_MAX_MS", 50)


async def tail_with_a_lost_slice(cluster: Cluster, node: Node, entries: int) -> Topic:
    """Its owner keeps no batches, so it folds nothing. The bundle of the first slice is gone."""
    topic = await cluster.topic("named")
    assert (await node.send(topic, 0, batch(b"lost"))).error is ErrorCode.NONE
    lost = (await cluster.head(topic)).tail[0]
    await cluster.store.delete(place_of(cluster.keyspace, topic.name, 0, lost).key)
    for number in range(1, entries):
        assert (await node.send(topic, 0, batch(b"%d" % number))).error is ErrorCode.NONE
    assert len((await cluster.head(topic)).tail) == entries
    return topic


async def delete_below(cluster: Cluster, topic: Topic, offset: int) -> None:
    bounds = read_if_unchanged(await cluster.etcd.txn(build_read(cluster.keyspace, topic, 0)))
    assert bounds is not None
    assert (await cluster.etcd.txn(build_move(cluster.keyspace, topic, 0, bounds, offset))).succeeded


async def test_writes_wait_until_the_records_of_the_lost_slice_are_deleted(cluster: Cluster) -> None:
    """No other partition waits, and nothing restarts."""
    node = await cluster.node(settle_keep_bytes=0)
    topic, healthy = await tail_with_a_lost_slice(cluster, node, TAIL_MAX), await cluster.topic("healthy")
    waiting = node.send(topic, 0, batch(b"waits"))
    for number in range(5):
        assert (await node.send(healthy, 0, batch(b"%d" % number), connection=2)).error is ErrorCode.NONE
    await until(lambda: node.metric("unreadable_slices_total") > 0, "settling has failed")
    assert not waiting.done()
    epoch = (await cluster.head(topic)).epoch
    await delete_below(cluster, topic, 1)
    assert (await waiting).base_offset == TAIL_MAX
    head = await cluster.head(topic)
    assert (head.epoch, head.next) == (epoch, TAIL_MAX + 1)
    other = await cluster.node()
    await node.kill()
    await until(lambda: (topic.topic_id, 0) in other.owned, "the next owner recovers")
    assert (await other.send(topic, 0, batch(b"next"))).base_offset == TAIL_MAX + 1


async def test_a_slice_without_room_keeps_no_place_of_other_bundles(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second defence: it holds also if a partition wants to be sealed without room."""

    def wants(writer: PartitionWriter) -> Want | None:
        return writer._pipeline.wants(99, committing=writer._ledger.committing)

    store = FaultyStore(cluster.store)
    node = await cluster.node(settle_keep_bytes=0, store=store)
    topic = await tail_with_a_lost_slice(cluster, node, TAIL_MAX - 1)
    monkeypatch.setattr(PartitionWriter, "wants", wants)
    gather = node.service.ownership.tools.bundler._gather
    store.plan = scripted(("put", ".kfb", Fault.HOLD), ("put", ".kfb", Fault.HOLD))
    first = node.send(topic, 0, batch(b"has room"), connection=1)
    await until(lambda: gather.in_flight == 1)
    second = node.send(topic, 0, batch(b"has none"), connection=2)
    await until(lambda: gather.in_flight == 2)
    store.release()
    assert (await first).error is ErrorCode.NONE
    await until(lambda: gather.in_flight == 0, "it waits for nothing but room")
    assert not second.done()
    await delete_below(cluster, topic, 1)
    assert (await second).base_offset == TAIL_MAX

"""Producer ids at an instance: how many it remembers, what who was forgotten gets, and what a snapshot costs others."""

from __future__ import annotations

import asyncio

from kafscale.log.snapshots import decode_snapshot
from kafscale.produce.log.producers import BATCH_BYTES, PRODUCER_BYTES
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, Node, batch

IDS_MAX = 100


def first_of(pid: int) -> bytes:
    return batch(b"%d" % pid, pid=pid, epoch=0, seq=0)


async def one_each(node: Node, topic: Topic, count: int) -> None:
    """One batch of each of `count` producers."""
    for start in range(0, count, IDS_MAX // 2):
        sent = [node.send(topic, 0, first_of(pid)) for pid in range(start, min(start + IDS_MAX // 2, count))]
        assert {answer.error for answer in await asyncio.gather(*sent)} == {ErrorCode.NONE}


async def test_an_instance_and_its_snapshots_remember_a_bounded_number_of_producers(cluster: Cluster) -> None:
    node = await cluster.node(produce_producer_ids=IDS_MAX)
    topic = await cluster.topic()
    await one_each(node, topic, 3 * IDS_MAX)
    assert node.metric("producer_ids") == IDS_MAX
    assert node.metric("producer_ids_evicted_total") == 2 * IDS_MAX
    await node.drain()
    snapshot = decode_snapshot(await cluster.store.get((await cluster.head(topic)).snap_key))
    assert {entry.producer_id for entry in snapshot.producers} == set(range(2 * IDS_MAX, 3 * IDS_MAX))


async def test_the_bound_holds_for_an_owner_that_reads_the_log_again(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await one_each(node, topic, 2 * IDS_MAX)
    await node.kill()
    again = await cluster.node(produce_producer_ids=IDS_MAX)
    newest = 2 * IDS_MAX - 1
    assert (await again.send(topic, 0, first_of(newest))).base_offset == newest, "a repeat is recognised"
    assert again.metric("producer_ids") == IDS_MAX


async def test_who_was_forgotten_goes_on_with_its_next_batch_and_its_repeat_is_a_new_batch(
    cluster: Cluster,
) -> None:
    """As with Kafka when a producer's state has expired. What is acknowledged is there, at that offset."""
    node = await cluster.node(produce_producer_ids=IDS_MAX)
    topic = await cluster.topic()
    await one_each(node, topic, 2 * IDS_MAX)
    end = 2 * IDS_MAX
    repeat = await node.send(topic, 0, first_of(0))
    assert (repeat.error, repeat.base_offset) == (ErrorCode.NONE, end)
    following = await node.send(topic, 0, batch(b"next", pid=1, epoch=0, seq=1))
    assert (following.error, following.base_offset) == (ErrorCode.NONE, end + 1)
    assert (await cluster.log(topic))[end:] == [b"0", b"next"]


async def test_all_partitions_of_an_instance_share_one_bound_and_give_it_back(cluster: Cluster) -> None:
    node = await cluster.node(produce_producer_bytes=1 << 20)
    quiet, flooded = await cluster.topic("quiet"), await cluster.topic("flooded")
    await one_each(node, quiet, 10)
    await one_each(node, flooded, 2_000)
    assert node.metric("producer_ids_bytes") < (1 << 20) + PRODUCER_BYTES + BATCH_BYTES
    assert node.metric("producer_ids_evicted_total") > 0
    assert (await node.send(quiet, 0, first_of(3))).base_offset == 3, "the flood is not theirs"
    await cluster.node()
    await node.service.drain()
    assert node.metric("producer_ids_bytes") == 0

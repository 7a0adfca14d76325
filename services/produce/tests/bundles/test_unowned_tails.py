"""Slices of partitions that nobody writes to any more become segments, and their bundles go: on a real etcd."""

from __future__ import annotations

import asyncio

from kafscale.storage.topics import Topic
from produce_harness import Cluster, until

LATE_S = 30.0


async def settled(cluster: Cluster, topic: Topic) -> None:
    async with asyncio.timeout(LATE_S):
        for partition in range(topic.partitions):
            while any(seg.is_slice for seg in (await cluster.head(topic, partition)).tail):
                await asyncio.sleep(0.05)


async def test_slices_of_an_owner_that_died_are_settled_without_a_request(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=4)
    node = await cluster.node()
    await node.send_all(topic, range(3))
    other = await cluster.node(settle_ms=1_000)  # it writes no bundles itself
    await node.kill()
    await settled(cluster, topic)
    for partition in range(topic.partitions):
        assert (await cluster.head(topic, partition)).owner == other.id
        assert await cluster.log(topic, partition) == [b"0", b"1", b"2"]
    assert other.requests == 0


async def test_young_slices_are_claimed_and_wait_for_their_age(cluster: Cluster) -> None:
    topic = await cluster.topic()
    node = await cluster.node()
    await node.send_all(topic, range(3))
    other = await cluster.node()
    await node.kill()
    await until(lambda: (topic.topic_id, 0) in other.owned, "it is claimed")
    assert all(seg.is_slice for seg in (await cluster.head(topic)).tail)


async def test_a_partition_without_an_owner_record_is_left_alone(cluster: Cluster) -> None:
    """It has no head, so no slices: its first request claims it. The scan reads no heads."""
    used, unused = await cluster.topic("used"), await cluster.topic("unused", partitions=100)
    node = await cluster.node()
    await node.send_all(used, range(1))
    other = await cluster.node()
    await node.kill()
    await until(lambda: (used.topic_id, 0) in other.owned, "the scan came by")
    assert other.owned == {(used.topic_id, 0)}
    assert not await cluster.etcd.get(cluster.keyspace.head(unused.topic_id, 0))

"""A key in etcd asks all owners to settle at once: on a real etcd."""

from __future__ import annotations

import asyncio

from kafscale.storage.topics import Topic
from produce_harness import Cluster, Node, until

LATE_S = 30.0


async def slices(cluster: Cluster, topic: Topic) -> int:
    heads = [await cluster.head(topic, partition) for partition in range(topic.partitions)]
    return sum(seg.is_slice for head in heads for seg in head.tail)


async def settled(cluster: Cluster, topic: Topic) -> None:
    async with asyncio.timeout(LATE_S):
        while await slices(cluster, topic):
            await asyncio.sleep(0.05)


def settle_ms(node: Node, topic: Topic, partition: int = 0) -> int:
    """What the writer has been given."""
    writer = node.service.ownership.partitions[topic.topic_id, partition].writer
    assert writer is not None
    return writer._limits.settle_ms


async def test_owners_settle_the_topic_that_is_named_and_no_other(cluster: Cluster) -> None:
    wanted, other = await cluster.topic("wanted", partitions=4), await cluster.topic("other", partitions=2)
    node = await cluster.node()
    for topic in (wanted, other):
        await node.send_all(topic, range(3))
    await cluster.etcd.put(cluster.keyspace.settle_request("r", "wanted"), b"")
    await settled(cluster, wanted)
    for partition in range(wanted.partitions):
        assert await cluster.log(wanted, partition) == [b"0", b"1", b"2"]
    assert await slices(cluster, other)


async def test_a_request_holds_for_partitions_that_are_claimed_later_and_for_what_is_committed_later(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic(partitions=2)
    node = await cluster.node()
    await node.send_all(topic, range(2))
    await node.kill()
    await cluster.etcd.put(cluster.keyspace.settle_request("r"), b"")
    other = await cluster.node()  # its scan claims them
    await settled(cluster, topic)
    await other.send_all(topic, range(2, 4))
    await settled(cluster, topic)
    for partition in range(topic.partitions):
        assert await cluster.log(topic, partition) == [b"0", b"1", b"2", b"3"]


async def test_a_request_that_is_gone_holds_no_more(cluster: Cluster) -> None:
    topic = await cluster.topic()
    node = await cluster.node()
    await node.send_all(topic, range(1))
    keys = [cluster.keyspace.settle_request(name, topic.name) for name in ("one", "two")]
    lease = await cluster.etcd.lease_grant(60)
    for key in keys:
        await cluster.etcd.put(key, b"", lease=lease)
    await settled(cluster, topic)
    await cluster.etcd.delete(keys[0])
    assert settle_ms(node, topic) == 0, "another command waits"
    await cluster.etcd.lease_revoke(lease)
    await until(lambda: settle_ms(node, topic) == node.settings.settle_ms, "the writer is configured")
    await node.send_all(topic, range(1, 2))
    assert await slices(cluster, topic) == 1

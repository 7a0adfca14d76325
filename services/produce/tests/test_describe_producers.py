"""DescribeProducers: what the owner of a partition says of its producers."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.log.snapshots import EXPIRY_MS
from kafscale.storage.etcd.client import EtcdUnknown, UnknownKind
from kafscale.storage.topics import Topic
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_producers import (
    API_KEY,
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponsePartition,
    decode_response,
    encode_request,
)
from produce_harness import Cluster, Node, batch, preferred
from transactions_harness import ID, PID, Coordinator, of_transaction, send_end, transactional_node

STAMP = 1_700_000_000_000


async def described(node: Node, topic: str, *numbers: int) -> list[DescribeProducersResponsePartition]:
    wanted = DescribeProducersRequestTopic(name=topic, partition_indexes=list(numbers))
    body = b"".join(encode_request(DescribeProducersRequest(topics=[wanted]), 0))
    answer = decode_response(b"".join(await node.service.describe_producers(inbound(body, API_KEY, 0))), 0)
    assert [part.name for part in answer.topics] == [topic]
    return answer.topics[0].partitions


async def written(node: Node, topic: Topic, *records: bytes) -> None:
    for each in records:
        assert (await node.send(topic, 0, each)).error is ErrorCode.NONE


async def test_the_newest_batch_of_each_producer_is_told(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await written(
        node,
        topic,
        batch(b"nobody's"),
        batch(b"a", b"b", pid=7, epoch=0, seq=0),
        batch(b"c", b"d", b"e", pid=7, epoch=0, seq=2),
        batch(b"x", pid=9, epoch=3, seq=0),
    )
    (part,) = await described(node, topic.name, 0)
    assert (part.error_code, part.partition_index) == (0, 0)
    assert [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
        for each in part.active_producers
    ] == [(7, 0, 4, STAMP), (9, 3, 0, STAMP)]
    assert {(each.coordinator_epoch, each.current_txn_start_offset) for each in part.active_producers} == {
        (-1, -1)
    }


async def test_a_partition_that_nobody_has_claimed_has_none_and_stays_unclaimed(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic("t", 2)
    parts = await described(node, topic.name, 0, 1)
    assert [(part.error_code, part.active_producers) for part in parts] == [(0, []), (0, [])]
    assert await cluster.owner(topic) is None
    assert node.owned == set()


async def test_topics_and_partitions_that_are_not_there_are_unknown(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    for name, number in (("no", 0), (topic.name, 1), (topic.name, -1)):
        (part,) = await described(node, name, number)
        assert (part.error_code, part.partition_index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, number)
        assert part.error_message


async def test_a_topic_is_not_called_unknown_when_etcd_cannot_be_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()

    async def no_answer() -> None:
        raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")

    monkeypatch.setattr(node.service.ownership.world.topics, "refresh", no_answer)
    (part,) = await described(node, "no", 0)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_does_not_own_a_partition_says_so(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic()
    owner = preferred(topic, 0, nodes)
    (other,) = set(nodes) - {owner}
    await written(owner, topic, batch(b"a", pid=7, epoch=0, seq=0))
    (part,) = await described(other, topic.name, 0)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (part,) = await described(owner, topic.name, 0)
    assert [each.producer_id for each in part.active_producers] == [7]


async def test_the_next_owner_tells_what_the_last_one_committed(cluster: Cluster) -> None:
    first = await cluster.node()
    topic = await cluster.topic()
    await written(first, topic, batch(b"a", b"b", pid=7, epoch=0, seq=0))
    await first.kill()
    second = await cluster.node()
    (part,) = await described(second, topic.name, 0)
    assert [(each.producer_id, each.last_sequence) for each in part.active_producers] == [(7, 1)]
    assert (await cluster.head(topic)).owner == second.id


async def test_a_batch_that_is_not_committed_is_not_told(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await written(node, topic, batch(b"a", pid=7, epoch=0, seq=0))
    sent = node.send(topic, 0, batch(b"b", pid=7, epoch=0, seq=1))
    (partition,) = node.service.ownership.partitions.values()
    assert partition.writer is not None
    before = partition.writer.head.next
    (part,) = await described(node, topic.name, 0)
    assert partition.writer.head.next == before == 1, "no turn of the loop came between"
    assert [each.last_sequence for each in part.active_producers] == [0]
    await asyncio.wait_for(sent, 10)
    (part,) = await described(node, topic.name, 0)
    assert [each.last_sequence for each in part.active_producers] == [1]


async def test_a_producer_that_was_silent_for_a_day_is_not_told(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await written(node, topic, batch(b"a", pid=7, epoch=0, seq=0), batch(b"b", pid=9, epoch=0, seq=0))
    (partition,) = node.service.ownership.partitions.values()
    partition.producers._producers[7].last_ms -= EXPIRY_MS
    (part,) = await described(node, topic.name, 0)
    assert [each.producer_id for each in part.active_producers] == [9]


async def test_an_open_transaction_is_told_however_old_it_is(cluster: Cluster) -> None:
    node = await transactional_node(cluster, Coordinator(), produce_producer_expiration_ms=1_000)
    topic = await cluster.topic()
    await written(node, topic, batch(b"other"))
    sent = node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    assert (await sent).base_offset == 1
    (partition,) = node.service.ownership.partitions.values()
    partition.producers._producers[PID].last_ms = 0
    (part,) = await described(node, topic.name, 0)
    (producer,) = part.active_producers
    assert (producer.producer_id, producer.coordinator_epoch, producer.current_txn_start_offset) == (
        PID,
        -1,
        1,
    )
    assert await send_end(node, topic, epoch=1)
    (part,) = await described(node, topic.name, 0)
    (producer,) = part.active_producers
    assert (producer.producer_epoch, producer.coordinator_epoch, producer.current_txn_start_offset) == (
        1,
        2,
        -1,
    )
    assert producer.last_sequence == -1, "none of its epoch"

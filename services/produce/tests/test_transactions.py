"""Transactions at an owner: the coordinator is asked before a batch is appended, and decides how it ends."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.log.heads import OpenTransaction
from kafscale.produce import joins
from kafscale.produce.log.model import StepDownReason
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest
from kafscale.runtime.transactions.participants import participants_from_pb
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, batch, preferred, until
from transactions_harness import (
    ID,
    NUMBER,
    PID,
    Coordinator,
    end_message,
    of_transaction,
    send_end,
    send_ends,
    transactional_node,
)


async def test_a_transaction_begins_with_a_join_and_ends_with_a_marker(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    assert (await node.send(topic, 0, of_transaction(b"a"), transactional_id=ID)).base_offset == 0
    assert (await node.send(topic, 0, of_transaction(b"b", 1), transactional_id=ID)).base_offset == 1
    head = await cluster.head(topic)
    assert (head.lso, head.next) == (0, 2)
    assert head.open == (OpenTransaction(producer_id=PID, epoch=0, number=NUMBER, first=0),)
    assert len(coordinator.asked) == 1, "it has joined"
    assert await send_end(node, topic)
    head = await cluster.head(topic)
    assert (head.open, head.lso, head.next) == ((), 3, 3)
    assert await send_end(node, topic), "a repeat is proven"
    assert (await cluster.head(topic)).next == 3
    assert node.metric("transaction_joins_total", answer="joined") == 1
    assert node.metric("transaction_ends_total", answer="done") == 2


@pytest.mark.parametrize(("version", "adds"), [(11, False), (12, True)])
async def test_one_question_asks_for_all_partitions_of_a_request(
    cluster: Cluster, version: int, adds: bool
) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic(partitions=3)
    sent = [(topic, {n: of_transaction(b"%d" % n) for n in range(3)})]
    answer = await node.send_many(sent, transactional_id=ID, version=version)
    assert [part.error_code for part in answer.parts] == [0, 0, 0]
    asked = {key for each in coordinator.asked for key in participants_from_pb(each.participants).partitions}
    assert asked == {(topic.topic_id, n) for n in range(3)}
    assert {each.add for each in coordinator.asked} == {adds}
    end = end_message(*asked, number=NUMBER)
    assert await send_ends(node, end) == {(PID, NUMBER, key) for key in asked}
    coordinator.asked.clear()
    again = [(topic, {n: of_transaction(b"%d" % n, 1) for n in range(3)})]
    coordinator.reply = lambda request: JoinReply(number=NUMBER + 1)
    await node.send_many(again, transactional_id=ID, version=version)
    assert len(coordinator.asked) == 1, "all are served by now"


async def test_only_batches_of_the_producer_wait_and_in_their_order(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    coordinator.held = asyncio.Event()
    waiting = [node.send(topic, 0, of_transaction(b"x", seq), transactional_id=ID) for seq in range(3)]
    await until(lambda: coordinator.asked)
    assert node.metric("transaction_joins_waiting") == 3
    assert (await node.send(topic, 0, batch(b"other"))).base_offset == 1
    assert not any(each.done() for each in waiting)
    coordinator.held.set()
    assert [answer.base_offset for answer in await asyncio.gather(*waiting)] == [2, 3, 4]
    assert len(coordinator.asked) == 1
    assert node.metric("transaction_joins_waiting") == 0


@pytest.mark.parametrize(
    ("inside", "version", "outside"),
    [
        (ErrorCode.PRODUCER_FENCED, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (30_000, 12, ErrorCode.NOT_ENOUGH_REPLICAS),  # of a newer coordinator
    ],
)
async def test_all_that_wait_are_refused_as_the_coordinator_says(
    cluster: Cluster, inside: int, version: int, outside: ErrorCode
) -> None:
    coordinator = Coordinator(lambda request: JoinReply(code=inside))
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    sent = [
        node.send(topic, 0, of_transaction(b"x", seq), transactional_id=ID, version=version)
        for seq in range(2)
    ]
    assert [answer.error for answer in await asyncio.gather(*sent)] == [outside, outside]
    coordinator.reply = lambda request: JoinReply(number=NUMBER)
    again = await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID, version=version)
    assert again.base_offset == 0


@pytest.mark.parametrize("code", [None, ErrorCode.CONCURRENT_TRANSACTIONS])
async def test_what_is_not_confirmed_now_is_sent_again_and_keeps_its_order(
    cluster: Cluster, code: ErrorCode | None
) -> None:
    coordinator = Coordinator(lambda request: JoinReply(code=code or 0))
    if code is None:
        coordinator.refuses()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    sent = [node.send(topic, 0, of_transaction(b"x", seq), transactional_id=ID) for seq in range(2)]
    assert {answer.error for answer in await asyncio.gather(*sent)} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    coordinator.reply = lambda request: JoinReply(number=NUMBER)
    late = await node.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)
    assert late.error is ErrorCode.NOT_ENOUGH_REPLICAS, "the batch before it must come first"
    assert (await node.send(topic, 0, of_transaction(b"x", 0), transactional_id=ID)).base_offset == 0
    assert (await node.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)).base_offset == 1


async def test_a_slow_coordinator_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "ANSWER_S", 0.05)
    coordinator = Coordinator(held=asyncio.Event())
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    answer = await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert node.metric("transaction_joins_total", answer="unanswered") == 1


async def test_an_end_that_overtakes_the_answer_refuses_what_waits(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    coordinator.held = asyncio.Event()
    waiting = node.send(topic, 0, of_transaction(b"x"), transactional_id=ID, version=12)
    await until(lambda: coordinator.asked)
    assert await send_end(node, topic, commit=False)
    coordinator.held.set()
    assert (await waiting).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await cluster.head(topic)).next == 1


async def test_the_end_in_the_answer_is_carried_out_first(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID, version=12)

    def reply(request: JoinRequest) -> JoinReply:
        ended = end_message((topic.topic_id, 0), epoch=1)
        return JoinReply(number=NUMBER + 1, ended=ended)

    coordinator.reply = reply
    answer = await node.send(topic, 0, of_transaction(b"y", epoch=1), transactional_id=ID, version=12)
    assert answer.base_offset == 2, "behind the marker"
    head = await cluster.head(topic)
    assert head.open == (OpenTransaction(producer_id=PID, epoch=1, number=NUMBER + 1, first=2),)
    assert await send_end(node, topic, epoch=1)
    assert (await cluster.head(topic)).next == 3, "it was carried out already"


async def test_a_request_names_its_id_and_has_one_producer(cluster: Cluster) -> None:
    node, topic = await transactional_node(cluster, Coordinator()), await cluster.topic(partitions=2)
    unnamed = await node.send(topic, 0, of_transaction(b"x"))
    assert unnamed.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    two = {0: of_transaction(b"x"), 1: of_transaction(b"x", epoch=1)}
    answer = await node.send_many([(topic, two)], transactional_id=ID)
    assert {part.error_code for part in answer.parts} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    plain = await node.send(topic, 0, batch(b"x"), transactional_id=ID)
    assert plain.base_offset == 0


async def test_a_bounded_number_of_requests_waits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "WAITING_MAX", 1)
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    coordinator.held = asyncio.Event()
    first = node.send(topic, 0, of_transaction(b"x", 0), transactional_id=ID)
    second = await node.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)
    assert second.error is ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.held.set()
    assert (await first).base_offset == 1


async def test_a_writer_that_stops_refuses_what_waits_for_a_coordinator(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    coordinator.held = asyncio.Event()
    waiting = node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    await until(lambda: coordinator.asked)
    (partition,) = node.service.ownership.partitions.values()
    assert partition.writer is not None
    partition.writer.step_down(StepDownReason.ORDERED, node.service.ownership.tools.now())
    node.service.pump.touch(partition)
    assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.metric("transaction_joins_waiting") == 0
    coordinator.held.set()
    again = node.send(topic, 0, of_transaction(b"x"), transactional_id=ID, lane_epoch=1)
    assert (await again).base_offset == 1


async def test_an_end_claims_a_partition_without_owner_and_waits_for_its_log(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    await node.kill()
    again = await transactional_node(cluster, coordinator)
    assert await send_end(again, topic, commit=False)
    head = await cluster.head(topic)
    assert (head.open, head.lso, [each.last for each in head.tail[-1].aborted]) == ((), 2, [1])


async def test_a_new_owner_takes_the_rest_of_what_is_open_without_a_question(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    await node.kill()
    again = await transactional_node(cluster, coordinator)
    coordinator.asked.clear()
    assert (await again.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)).base_offset == 1
    assert not coordinator.asked


async def test_what_is_open_goes_along_with_a_partition_that_is_handed_over(cluster: Cluster) -> None:
    node, topic = await transactional_node(cluster, Coordinator()), await cluster.topic()
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    other = await transactional_node(cluster, Coordinator())
    await node.drain()
    await until(lambda: (topic.topic_id, 0) in other.owned)
    assert (await other.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)).base_offset == 1
    assert await send_end(other, topic)
    head = await cluster.head(topic)
    assert (head.open, head.next) == ((), 3)


async def test_ends_of_others_partitions_and_of_unknown_topics_come_later(cluster: Cluster) -> None:
    nodes = [await transactional_node(cluster, Coordinator()) for _ in range(2)]
    topic = await cluster.topic()
    await until(lambda: all(len(node.service.live.ready()) == 2 for node in nodes))
    owner = preferred(topic, 0, nodes)
    (other,) = (node for node in nodes if node is not owner)
    await owner.send(topic, 0, batch(b"first"))
    assert not await send_end(other, topic)
    assert not await send_end(owner, topic, partition=5)
    assert await send_end(owner, topic)
    assert other.metric("transaction_ends_total", answer="later") == 1


async def test_an_end_that_takes_too_long_comes_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.produce.ends.WAIT_MS", 50)
    node, topic = await transactional_node(cluster, Coordinator()), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    (partition,) = node.service.ownership.partitions.values()
    monkeypatch.setattr(partition, "_commit", lambda writer, action: None)
    assert not await send_end(node, topic)


async def test_an_end_is_not_done_when_the_owner_stops(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, topic = await transactional_node(cluster, Coordinator()), await cluster.topic()
    await node.send(topic, 0, batch(b"first"))
    (partition,) = node.service.ownership.partitions.values()
    monkeypatch.setattr(partition, "_commit", lambda writer, action: None)
    ending = asyncio.create_task(send_end(node, topic))
    assert partition.writer is not None
    writer = partition.writer
    await until(lambda: writer._ledger.sent is not None, "the end waits for its proof")
    sent = writer._ledger.sent
    assert sent is not None
    writer.commit_rejected(sent.txn, node.service.ownership.tools.now())
    node.service.pump.touch(partition)
    assert not await ending
    assert node.metric("transaction_ends_total", answer="later") == 1


async def test_ends_are_served_when_transactions_are_turned_off(cluster: Cluster) -> None:
    coordinator = Coordinator()
    node, topic = await transactional_node(cluster, coordinator), await cluster.topic()
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    await node.kill()
    off = await cluster.node(transactions=False)
    assert (
        await off.send(topic, 0, of_transaction(b"x", 1), transactional_id=ID)
    ).error is ErrorCode.INVALID_REQUEST
    assert await send_end(off, topic)


async def test_an_instance_counts_what_is_open_and_how_long_it_has_seen_it(cluster: Cluster) -> None:
    node, topic = await transactional_node(cluster, Coordinator()), await cluster.topic()
    owned, seen = node.service.ownership.partitions, node.service.open_transactions
    await node.send(topic, 0, of_transaction(b"x"), transactional_id=ID)
    await seen.look(owned.values())
    await until(lambda: node.metric("oldest_open_transaction_seconds") > 0)
    age_s = node.metric("oldest_open_transaction_seconds")
    await node.send(topic, 0, of_transaction(b"x", pid=PID + 1), transactional_id=ID)
    await seen.look(owned.values())
    assert node.metric("open_transactions") == 2
    assert node.metric("oldest_open_transaction_seconds") >= age_s
    assert await send_end(node, topic)
    assert await send_end(node, topic, pid=PID + 1)
    await seen.look(owned.values())
    assert (node.metric("open_transactions"), node.metric("oldest_open_transaction_seconds")) == (0, 0)

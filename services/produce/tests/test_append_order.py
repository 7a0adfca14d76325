"""A producer's batches keep their order across refusals that end a writer."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.produce import requests
from kafscale.produce.requests import KEPT_MAX, KEPT_MS, AppendOrder
from kafscale.storage.keys import TopicId
from kafscale.testkit.objects import Fault, FaultyStore
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, batch

KEY = (TopicId(bytes(16)), 0)


def view(pid: int, seq: int, epoch: int = 0) -> memoryview:
    return memoryview(batch(b"x", pid=pid, epoch=epoch, seq=seq))


def test_after_a_refusal_an_unknown_producer_must_offer_that_batch_first() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 5), 0)
    assert table.is_behind(KEY, view(1, 6), (), 0)
    assert not table.is_behind(KEY, view(1, 5), (), 0)
    assert not table.is_behind(KEY, view(1, 4), (), 0)


def test_the_lowest_of_several_refused_batches_counts() -> None:
    table = AppendOrder()
    for seq in (5, 3, 4):
        table.refused(KEY, view(1, seq), 0)
    assert [table.is_behind(KEY, view(1, seq), (), 0) for seq in (2, 3, 4, 5)] == [False, False, True, True]


def test_sequences_wrap() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 2**31 - 1), 0)
    table.refused(KEY, view(1, 0), 0)
    assert table.is_behind(KEY, view(1, 0), (), 0)
    assert not table.is_behind(KEY, view(1, 2**31 - 1), (), 0)


def test_others_are_not_held_up() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 0), 0)
    assert not table.is_behind(KEY, view(2, 1), (), 0)
    assert not table.is_behind((KEY[0], 1), view(1, 1), (), 0)
    assert not table.is_behind(KEY, memoryview(batch(b"x")), (), 0)


def test_a_new_epoch_of_the_producer_starts_afresh() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 5), 0)
    assert not table.is_behind(KEY, view(1, 6, epoch=1), (), 0)
    table.refused(KEY, view(1, 7, epoch=1), 0)
    assert not table.is_behind(KEY, view(1, 6, epoch=1), (), 0)
    assert table.is_behind(KEY, view(1, 8, epoch=1), (), 0)


def test_a_producer_that_the_partition_knows_is_checked_there() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 5), 0)
    assert not table.is_behind(KEY, view(1, 6), {1}, 0)
    assert table.is_behind(KEY, view(1, 6), {2}, 0)


def test_what_was_taken_is_waited_for_no_more() -> None:
    table = AppendOrder()
    for seq, left in ((4, 1), (5, 0), (6, 0)):
        table.refused(KEY, view(1, 5), 0)
        table.taken(KEY, view(1, seq))
        table.taken(KEY, view(2, 9))
        table.taken((KEY[0], 1), view(1, 9))
        assert len(table) == left
    table.refused(KEY, view(1, 5), 0)
    table.taken(KEY, view(1, 0, epoch=1))
    assert len(table) == 0, "the epoch of the refused batch has ended"


def test_what_is_no_batch_is_left_to_the_writer() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 5), 0)
    for records in (None, memoryview(b""), memoryview(bytes(60))):
        table.refused(KEY, records, 0)
        table.taken(KEY, records)
        assert not table.is_behind(KEY, records, (), 0)
    assert len(table) == 1


def test_the_table_is_bounded_and_forgets() -> None:
    table = AppendOrder()
    table.refused(KEY, view(0, 0), 0)
    table.refused(KEY, view(1, 0), KEPT_MS)
    assert len(table) == 1
    records = bytearray(view(1, 0))
    for pid in range(KEPT_MAX + 50):
        records[43:51] = pid.to_bytes(8, "big")
        table.refused(KEY, memoryview(records), KEPT_MS)
    assert len(table) == KEPT_MAX


def test_a_batch_that_was_refused_long_ago_holds_nobody_up() -> None:
    table = AppendOrder()
    table.refused(KEY, view(1, 5), 1_000)
    assert table.is_behind(KEY, view(1, 6), (), 1_000 + KEPT_MS - 1)
    assert not table.is_behind(KEY, view(1, 6), (), 1_000 + KEPT_MS)


async def test_being_behind_is_no_new_refusal_so_a_producer_is_held_up_for_a_while_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may have given the first batch up: nothing else of it would ever be taken."""
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"other"))
    budget = node.runtime.budget
    budget.reserve(budget.bytes_max - budget.used_bytes)
    assert (
        await node.send(topic, 0, batch(b"0", pid=9, epoch=0, seq=0))
    ).error is ErrorCode.NOT_ENOUGH_REPLICAS
    budget.release(budget.used_bytes)
    monkeypatch.setattr(requests, "KEPT_MS", 1_500)
    refusals = 0
    async with asyncio.timeout(20):
        while (answer := await node.send(topic, 0, batch(b"50", pid=9, epoch=0, seq=50))).error:
            assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
            refusals += 1
    assert refusals
    assert await cluster.log(topic) == [b"other", b"50"]


async def test_a_pipeline_whose_first_batch_met_a_full_store_is_taken_in_order_or_not_at_all(
    cluster: Cluster,
) -> None:
    """Else the repeat of the first would look like an old duplicate: acknowledged, and nowhere."""
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"other"))
    store.plan = lambda operation, key: Fault.FULL if operation == "put" else None
    batches = [batch(b"%d" % n, pid=9, epoch=0, seq=n) for n in range(4)]
    assert (await node.send(topic, 0, batches[0])).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await node.send(topic, 0, batches[1])).error is ErrorCode.KAFKA_STORAGE_ERROR
    store.plan = lambda operation, key: None
    answer = await node.send(topic, 0, batches[2])
    while answer.error is ErrorCode.KAFKA_STORAGE_ERROR:  # for a moment, without a claim
        answer = await node.send(topic, 0, batches[2])
    assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    answers = await asyncio.gather(*(node.send(topic, 0, records) for records in batches))
    assert [answer.base_offset for answer in answers] == [1, 2, 3, 4]
    assert await cluster.log(topic) == [b"other", b"0", b"1", b"2", b"3"]


async def test_a_pipeline_whose_first_batch_found_no_memory_is_taken_in_order(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"other"))
    budget = node.runtime.budget
    budget.reserve(budget.bytes_max - budget.used_bytes)
    batches = [batch(b"%d" % n, pid=9, epoch=0, seq=n) for n in range(3)]
    assert (await node.send(topic, 0, batches[0])).error is ErrorCode.NOT_ENOUGH_REPLICAS
    budget.release(budget.used_bytes)
    assert (await node.send(topic, 0, batches[1])).error is ErrorCode.NOT_ENOUGH_REPLICAS
    answers = await asyncio.gather(*(node.send(topic, 0, records) for records in batches))
    assert [answer.base_offset for answer in answers] == [1, 2, 3]


async def test_a_gap_behind_a_refused_batch_is_no_gap_until_that_batch_was_taken(cluster: Cluster) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER makes librdkafka raise its epoch and send stored batches again."""
    node = await cluster.node()
    topic = await cluster.topic()
    batches = [batch(b"%d" % n, pid=9, epoch=0, seq=n) for n in range(4)]
    await node.send(topic, 0, batches[0])
    assert (await node.send(topic, 0, batches[2])).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    budget = node.runtime.budget
    budget.reserve(budget.bytes_max - budget.used_bytes)
    assert (await node.send(topic, 0, batches[1])).error is ErrorCode.NOT_ENOUGH_REPLICAS
    budget.release(budget.used_bytes)
    assert (await node.send(topic, 0, batches[2])).error is ErrorCode.NOT_ENOUGH_REPLICAS
    answers = await asyncio.gather(*(node.send(topic, 0, records) for records in batches[1:3]))
    assert [answer.base_offset for answer in answers] == [1, 2]
    gap = batch(b"9", pid=9, epoch=0, seq=9)
    assert (await node.send(topic, 0, gap)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await cluster.log(topic) == [b"0", b"1", b"2"]


async def test_a_new_owner_doubts_the_gaps_of_producers_that_its_log_knows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner, or a front door that knew none, may have refused what is missing."""
    node = await cluster.node(node_id=3)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a", pid=7, epoch=0, seq=0))
    await node.kill()
    monkeypatch.setattr(requests, "NEW_OWNER_MS", 1_500)
    again = await cluster.node(node_id=3)
    gap, doubted = batch(b"c", pid=7, epoch=0, seq=2), 0
    async with asyncio.timeout(20):
        while (answer := await again.send(topic, 0, gap)).error is ErrorCode.NOT_ENOUGH_REPLICAS:
            doubted += 1
    assert doubted
    assert answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

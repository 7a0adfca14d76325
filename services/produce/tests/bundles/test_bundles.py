"""An instance that writes bundles, on a real etcd."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.log.bundle import parse_bundle
from kafscale.log.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode
from produce_harness import SEGMENTS, Cluster, batch, until

PARTITIONS = 12


async def bundles(cluster: Cluster) -> list[str]:
    return [info.key async for info in cluster.store.list(cluster.keyspace.bundles_prefix())]


async def test_a_request_to_many_partitions_is_one_object(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=PARTITIONS)
    node = await cluster.node()
    await node.send_many([(topic, {n: batch(b"first") for n in range(PARTITIONS)})])  # claims
    written, sent = [], [b"first"]
    while (
        PARTITIONS not in written and len(sent) < 10
    ):  # on a busy machine a request may take two turns of the loop
        before = await bundles(cluster)
        sent.append(b"%d" % len(sent))
        answer = await node.send_many([(topic, {n: batch(sent[-1]) for n in range(PARTITIONS)})])
        assert {part.error_code for part in answer.parts} == {0}
        new = set(await bundles(cluster)) - set(before)
        written = [len(parse_bundle(await cluster.store.get(each)).entries) for each in new]
    assert written == [PARTITIONS]
    for number in range(PARTITIONS):
        assert await cluster.log(topic, number) == sent
        assert all(seg.is_slice for seg in (await cluster.head(topic, number)).tail)


async def test_an_instance_may_write_no_bundles_at_all(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=PARTITIONS)
    node = await cluster.node(**SEGMENTS)
    sent = [node.send_many([(topic, {n: batch(b"%d" % k) for n in range(PARTITIONS)})]) for k in range(3)]
    for answer in sent:
        assert {part.error_code for part in (await answer).parts} == {0}
    assert await bundles(cluster) == []
    for number in range(PARTITIONS):
        assert [seg.records for seg in (await cluster.head(topic, number)).tail] == [1, 1, 1]
        assert await cluster.log(topic, number) == [b"0", b"1", b"2"]


async def test_small_slices_are_folded_and_settled_and_the_next_owner_reads_them(cluster: Cluster) -> None:
    topic = await cluster.topic()
    node = await cluster.node()
    for number in range(100):
        assert (await node.send(topic, 0, batch(b"%d" % number))).error == 0
    tail = (await cluster.head(topic)).tail
    assert len(tail) < 24, "folds keep the tail short"
    assert node.metric("records_total", topic="t") == 100, (
        "each is counted once, however often it is repeated"
    )
    assert node.metric("folded_bytes_total") > 0
    sent = sum(len(batch(b"%d" % number)) for number in range(100))
    assert node.metric("bytes_total", topic="t") == sent + 100 * (HEADER_SIZE + FOOTER_SIZE)
    assert node.metric("bundle_seconds_count") == node.metric("bundle_bytes_count") == 100
    assert (node.metric("bundle_slices_count"), node.metric("bundle_slices_sum")) == (100, 100)
    await node.kill()
    other = await cluster.node(settle_ms=1_000)
    assert (await other.send(topic, 0, batch(b"100"))).error == 0
    async with asyncio.timeout(20):
        while any(seg.is_slice for seg in (await cluster.head(topic)).tail):
            await asyncio.sleep(0.05)
    assert await cluster.log(topic) == [b"%d" % number for number in range(101)]


async def test_a_bundle_is_deleted_when_its_slices_are_settled(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=3)
    node = await cluster.node(settle_ms=1_000, bundle_grace_ms=100)
    for number in range(10):
        answer = await node.send_many([(topic, {n: batch(b"%d" % number) for n in range(3)})])
        assert {part.error_code for part in answer.parts} == {0}
    async with asyncio.timeout(20):
        while await bundles(cluster):
            await asyncio.sleep(0.05)
    for partition in range(3):
        assert await cluster.log(topic, partition) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("fault", [Fault.DROP_REPLY, Fault.UNAVAILABLE, Fault.LATE])
async def test_a_put_without_an_answer_is_sent_again_and_every_record_is_there_once(
    cluster: Cluster, fault: Fault
) -> None:
    topic = await cluster.topic(partitions=3)
    store = FaultyStore(cluster.store, scripted(("put", ".kfb", fault), ("put", ".kfb", fault)))
    node = await cluster.node(store=store)
    await node.send_all(topic, range(3))
    await store.deliver_late()
    await node.send_all(topic, range(3, 6))
    assert node.metric("puts_unknown_total") > 0, "the alert KafscaleStoreUncertain sees bundles as well"
    assert node.metric("puts_total") > 6
    for partition in range(3):
        assert await cluster.log(topic, partition) == [b"%d" % number for number in range(6)]


async def test_a_store_that_is_full_ends_the_epochs_of_the_partitions_in_the_bundle_only(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic(partitions=2)
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    await node.send_all(topic, range(1))
    epochs = [(await cluster.head(topic, n)).epoch for n in range(2)]
    store.plan = scripted(("put", ".kfb", Fault.FULL))
    refused = await node.send(topic, 0, batch(b"refused"))
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await node.send(topic, 1, batch(b"1"))).error is ErrorCode.NONE
    assert await cluster.log(topic, 0) == [b"0"]
    assert await cluster.log(topic, 1) == [b"0", b"1"]
    assert (await cluster.head(topic, 1)).epoch == epochs[1]


async def test_a_held_bundle_blocks_only_its_partitions(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=2)
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    await node.send_all(topic, range(1))
    before = len(node.service.own_bundles)
    store.plan = scripted(("put", ".kfb", Fault.HOLD))
    held = node.send(topic, 0, batch(b"held"), connection=1)
    await until(lambda: len(node.service.own_bundles) > before, "the bundle is on its way")
    for number in range(20):
        assert (await node.send(topic, 1, batch(b"%d" % number), connection=2)).error is ErrorCode.NONE
    assert not held.done()
    store.release()
    assert (await held).error is ErrorCode.NONE
    assert await cluster.log(topic, 0) == [b"0", b"held"]


async def test_what_waited_for_a_flight_is_sealed_with_the_requests_that_it_answers(cluster: Cluster) -> None:
    """Otherwise two crowds of producers take turns for ever, in twice as many bundles."""
    topic = await cluster.topic()
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    await node.send_all(topic, range(1))
    before = await bundles(cluster)
    store.plan = scripted(("put", ".kfb", Fault.HOLD))
    first = node.send(topic, 0, batch(b"first"), connection=1)
    clock, began_ms = node.runtime.clock, node.runtime.clock.now_ms()
    await until(lambda: clock.now_ms() - began_ms >= 400, "the flight takes long")
    waiting = node.send(topic, 0, batch(b"waiting"), connection=2)
    await until(lambda: node.service.ownership.tools.bundler._gather.waiting == 1, "it waits for the flight")
    store.release()
    assert (await first).error is ErrorCode.NONE
    back = node.send(topic, 0, batch(b"back"), connection=1)
    assert {(await each).error for each in (waiting, back)} == {ErrorCode.NONE}
    assert len(set(await bundles(cluster)) - set(before)) == 2
    assert await cluster.log(topic) == [b"0", b"first", b"waiting", b"back"]


async def test_the_age_of_the_oldest_slice_is_shown_until_it_is_settled(cluster: Cluster) -> None:
    topic = await cluster.topic(partitions=2)
    node = await cluster.node()
    owned, age = node.service.ownership.partitions, node.service.slice_age
    await age.look(owned.values())
    assert node.metric("oldest_slice_seconds") == 0
    await node.send_all(topic, range(1))
    heads = [await cluster.head(topic, partition) for partition in range(2)]
    first_ms = min(head.tail[0].created_ms for head in heads)
    await age.look(owned.values())
    assert 0 <= node.metric("oldest_slice_seconds") <= (node.runtime.clock.wall_ms() - first_ms) / 1000
    await cluster.etcd.put(cluster.keyspace.settle_request("r"), b"")
    async with asyncio.timeout(20):
        for partition in range(2):
            while (await cluster.head(topic, partition)).tail[0].is_slice:
                await asyncio.sleep(0.05)
    await age.look(owned.values())
    assert node.metric("oldest_slice_seconds") == 0

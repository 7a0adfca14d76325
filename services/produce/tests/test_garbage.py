"""Law: an answered request, and a flush that ended in any way, leave no reference cycle. The garbage collector
runs rarely, and a cycle may hold the records of many requests."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from kafscale.log.heads import encode_head
from kafscale.testkit.garbage import collector_off, cycles
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, Node, batch

RECORD = b"x" * 1_000


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    with collector_off():
        yield


async def many_requests(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    topic = await cluster.topic("many", 4)
    for _ in range(10):
        answers = [node.send(topic, n % 4, batch(RECORD)) for n in range(20)]
        assert {(await answer).error for answer in answers} == {ErrorCode.NONE}


async def a_store_that_fails_now_and_then(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    topic = await cluster.topic("faults")
    for fault in (Fault.UNAVAILABLE, Fault.DROP_REPLY, Fault.UNAVAILABLE):
        store.plan = scripted(("put", "", fault))
        assert (await node.send(topic, 0, batch(RECORD))).error is ErrorCode.NONE


async def requests_that_are_not_answered_in_time(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    topic = await cluster.topic("late")
    await node.send(topic, 0, batch(RECORD))
    store.plan = lambda operation, key: Fault.HOLD if operation == "put" else None
    answer = await node.send(topic, 0, batch(RECORD), timeout_ms=100)
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    store.plan = lambda operation, key: None
    store.release()
    assert (await node.send(topic, 0, batch(RECORD))).error is ErrorCode.NONE


async def a_store_without_room(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    topic = await cluster.topic("full")
    store.plan = lambda operation, key: Fault.FULL if operation == "put" else None
    assert (await node.send(topic, 0, batch(RECORD))).error is not ErrorCode.NONE
    store.plan = lambda operation, key: None


async def logs_that_are_not_recovered_at_once(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    log = await left_by_another(cluster, "late")
    store.plan = scripted(("get", ".kfb", Fault.UNAVAILABLE))
    assert (await node.send(log.topic, 0, batch(RECORD))).error is ErrorCode.NONE
    assert store.plan("get", ".kfb") is None, "it was met"


async def a_log_that_is_damaged(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    """The partition is given up."""
    log = await left_by_another(cluster, "damaged")
    store.plan = lambda operation, key: Fault.BIT_FLIP if operation == "get" else None
    assert (await node.send(log.topic, 0, batch(RECORD))).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.metric("damaged_partitions_total") > 0
    store.plan = lambda operation, key: None


async def a_partition_that_another_takes(cluster: Cluster, node: Node, store: FaultyStore) -> None:
    topic = await cluster.topic("taken")
    assert (await node.send(topic, 0, batch(RECORD))).error is ErrorCode.NONE
    head = await cluster.head(topic)
    released = encode_head(replace(head, epoch=head.epoch + 1, owner=""))
    await cluster.etcd.put(cluster.keyspace.head(topic.topic_id, 0), released)
    assert (await node.send(topic, 0, batch(RECORD))).error is not ErrorCode.NONE
    assert node.metric("stepdowns_total", reason="fenced") == 1


async def left_by_another(cluster: Cluster, name: str) -> LogBuilder:
    topic = await create_topic(cluster.etcd, cluster.keyspace, name)
    log = LogBuilder(cluster.etcd, cluster.keyspace, cluster.store, topic, as_slices=True)
    for _ in range(20):
        await log.append(records(2, size=2_000))  # the middle of the bundle is in it
    return log


@pytest.mark.parametrize(
    "use",
    [
        many_requests,
        a_store_that_fails_now_and_then,
        requests_that_are_not_answered_in_time,
        a_store_without_room,
        logs_that_are_not_recovered_at_once,
        a_log_that_is_damaged,
        a_partition_that_another_takes,
    ],
)
async def test_requests_leave_no_cycle(
    cluster: Cluster, use: Callable[[Cluster, Node, FaultyStore], Awaitable[None]]
) -> None:
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    await node.send(await cluster.topic(), 0, batch(RECORD))
    await cycles()  # of the start
    await use(cluster, node, store)
    assert not await cycles()

"""Law: an answered request, and a flush that ended in any way, leave no reference cycle. The garbage collector
runs rarely, and a cycle may hold the records of many requests."""

from collections.abc import Awaitable, Callable, Iterator

import pytest
from kafscale.testkit.garbage import collector_off, cycles
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


@pytest.mark.parametrize(
    "use",
    [
        many_requests,
        a_store_that_fails_now_and_then,
        requests_that_are_not_answered_in_time,
        a_store_without_room,
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

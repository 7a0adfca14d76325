"""Several instances: partitions move, and no producer notices."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.produce.log.model import State, StepDownReason
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.partition import Phase
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, Node, batch, preferred, until
from produce_load import Load


def shares(topic: object, nodes: list[Node]) -> bool:
    """Every partition is with the node that rendezvous hashing prefers."""
    return all(
        preferred(topic, n, nodes).owned >= {(topic.topic_id, n)}  # type: ignore[attr-defined, arg-type]
        for n in range(topic.partitions)  # type: ignore[attr-defined]
    )


async def test_a_new_instance_gets_its_share_under_load(cluster: Cluster) -> None:
    first = await cluster.node()
    topic = await cluster.topic("t", 8)
    async with Load(cluster, topic) as load:
        await load.progress()
        assert len(first.owned) == 8
        second = await cluster.node()
        await until(lambda: shares(topic, [first, second]), "both have their share")
        await load.progress()
    assert not any(producer.retries for producer in load.producers), "no error reached a producer"
    given = first.metric("handoffs_total")
    assert given == len(second.owned) > 0
    assert second.metric("claims_total", grounds="handed_over") == given
    assert first.metric("stepdowns_total", reason="released") == given
    assert first.metric("owned_partitions") == 8 - given


async def test_an_instance_that_is_told_to_end_gives_everything_away_under_load(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic("t", 8)
    async with Load(cluster, topic) as load:
        await load.progress()
        leaver, stayer = nodes
        had = len(leaver.owned)
        await leaver.drain()
        await load.progress()
    assert had > 0
    assert leaver.metric("handoffs_total") == had
    assert len(stayer.owned) == 8
    assert not any(producer.retries for producer in load.producers), "no error reached a producer"


async def test_the_last_instance_leaves_its_partitions_unowned_for_the_next_one(cluster: Cluster) -> None:
    node = await cluster.node(node_id=1)
    topic = await cluster.topic("t", 3)
    await node.send_many([(topic, {n: batch(b"a", pid=1, epoch=0, seq=0) for n in range(3)})])
    await node.drain()
    for n in range(3):
        head = await cluster.head(topic, n)
        assert (head.owner, head.handoff_to, head.snap_offset, head.next) == ("", "", 1, 1)
    successor = await cluster.node(node_id=2)
    repeated = await successor.send(topic, 0, batch(b"a", pid=1, epoch=0, seq=0))
    assert repeated.base_offset == 0
    assert (await cluster.head(topic)).epoch == 2


async def test_a_killed_instance_is_replaced_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic("t", 6)
    async with Load(cluster, topic) as load:
        await load.progress()
        await nodes[0].kill()
        await load.progress()
        await until(lambda: len(nodes[1].owned) == 6, "the survivor has all")
        third = await cluster.node()
        await until(lambda: shares(topic, [nodes[1], third]), "the new one has its share")
        await load.progress()


async def test_an_instance_that_does_not_own_and_should_not_claim_says_so(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic()
    owner = preferred(topic, 0, nodes)
    other = nodes[1 - nodes.index(owner)]
    await other.service.ownership.world.live.refresh()
    answer = await other.send(topic, 0, batch(b"a"))
    assert (answer.status, answer.error) == (ReplyStatus.NOT_OWNER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (await owner.send(topic, 0, batch(b"a"))).base_offset == 0


async def test_a_refused_lane_stays_refused_until_its_epoch_rises(cluster: Cluster) -> None:
    """The instance may own the partition by now, but what came before must not be overtaken."""
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic()
    other = nodes[1 - nodes.index(preferred(topic, 0, nodes))]
    await other.service.ownership.world.live.refresh()
    assert (await other.send(topic, 0, batch(b"a"), connection=5)).status is ReplyStatus.NOT_OWNER
    await preferred(topic, 0, nodes).drain()
    await until(lambda: len(other.service.ownership.fleet().ready) == 1, "the view has moved")
    assert (await other.send(topic, 0, batch(b"b"), connection=5)).status is ReplyStatus.NOT_OWNER
    assert (await other.send(topic, 0, batch(b"a"), connection=5, lane_epoch=1)).base_offset == 0
    assert (await other.send(topic, 0, batch(b"b"), connection=5, lane_epoch=1)).base_offset == 1
    assert (await other.send(topic, 0, batch(b"c"), connection=6)).base_offset == 2


async def test_a_released_partition_is_claimed_at_once_by_the_node_that_its_record_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request comes for it, and no scan: those that a change of the fleet causes are over by then."""
    monkeypatch.setattr("kafscale.produce.ownership.SCAN_EVERY_S", 3600)
    monkeypatch.setattr("kafscale.produce.handoff.BALANCE_SETTLE_S", 1.0)
    first = await cluster.node()
    topic = await cluster.topic("t", 6)
    await first.send_many([(topic, {n: batch(b"x") for n in range(6)})])
    second = await cluster.node()
    await until(lambda: first.metric("handoffs_total") > 0, "something was handed over")
    await until(lambda: shares(topic, [first, second]), "both have their share", within_s=5)
    assert len(first.owned) + len(second.owned) == 6
    assert second.metric("claims_total", grounds="handed_over") == len(second.owned) > 0


async def test_a_release_that_the_successor_does_not_see_costs_time_only(cluster: Cluster) -> None:
    first = await cluster.node()
    topic = await cluster.topic("t", 4)
    async with Load(cluster, topic) as load:
        await load.progress()
        second = await cluster.node()
        second.service.owners._listeners.clear()
        await until(lambda: first.metric("handoffs_total") > 0, "something was handed over")
        await load.progress()
        await until(lambda: shares(topic, [first, second]), "claimed by requests")
    assert not any(producer.retries for producer in load.producers)


async def test_idle_partitions_move_to_a_new_instance_too(cluster: Cluster) -> None:
    first = await cluster.node()
    topic = await cluster.topic("t", 6)
    await first.send_many([(topic, {n: batch(b"x") for n in range(6)})])
    second = await cluster.node()
    await until(lambda: shares(topic, [first, second]), "both have their share")
    assert len(first.owned) + len(second.owned) == 6


async def test_partitions_of_a_dead_instance_are_claimed_without_a_request(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic("t", 6)
    for n in range(6):
        await preferred(topic, n, nodes).send(topic, n, batch(b"x"))
    await nodes[0].kill()
    await until(lambda: len(nodes[1].owned) == 6, "the survivor has all")
    assert nodes[1].metric("claims_total", grounds="owner_gone") > 0


async def test_handing_over_is_slow_enough_for_the_rest_to_go_on(cluster: Cluster) -> None:
    first = await cluster.node(produce_handoffs_per_s=5)
    topic = await cluster.topic("t", 12)
    await first.send_many([(topic, {n: batch(b"x") for n in range(12)})])
    loop = asyncio.get_running_loop()
    second = await cluster.node()
    started_s = loop.time()
    await until(lambda: shares(topic, [first, second]), "both have their share")
    moved = len(second.owned)
    assert loop.time() - started_s >= (moved - 1) / 5 - 0.5


async def test_a_topic_that_is_deleted_in_the_moment_in_which_its_partition_is_drained_ends_no_process(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell performs Drained after the writer has stepped down."""
    node = await cluster.node()
    topic, other = await cluster.topic(), await cluster.topic("other")
    assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NONE
    partition = node.service.ownership.partitions[topic.topic_id, 0]
    finish = PartitionWriter._finish_drain

    def finish_and_lose(writer: PartitionWriter) -> None:
        finish(writer)
        if writer.state is State.DRAINED:
            writer.step_down(StepDownReason.TOPIC_DELETED, node.service.ownership.tools.now())

    monkeypatch.setattr(PartitionWriter, "_finish_drain", finish_and_lose)
    node.service.handoffs._begin(partition)
    await until(lambda: partition.phase is Phase.GONE or not node.is_live, "it stopped")
    assert (await node.send(other, 0, batch(b"y"))).error is ErrorCode.NONE
    assert node.is_live

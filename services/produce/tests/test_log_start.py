"""What a writer makes of a log start that others move under it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafscale.log.log_starts import build_move, build_read, read_if_unchanged
from kafscale.log.state import StoredState
from kafscale.produce.log_starts import LogStarts
from kafscale.storage.etcd.client import Txn, TxnResult
from kafscale.storage.topics import Topic
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from produce_harness import PATIENCE_S, SEGMENTS, Cluster, batch, until

RECORDS = 60
CHECKPOINT_AT = 25


async def bounds_of(cluster: Cluster, topic: Topic) -> StoredState:
    result = await cluster.etcd.txn(Txn(success=(build_read(cluster.keyspace, topic, 0),)))
    (answer,) = result.responses
    assert isinstance(answer, TxnResult)
    bounds = read_if_unchanged(answer)
    assert bounds is not None
    return bounds


async def delete_below(cluster: Cluster, topic: Topic, offset: int) -> None:
    move = build_move(cluster.keyspace, topic, 0, await bounds_of(cluster, topic), offset)
    assert (await cluster.etcd.txn(move)).succeeded


async def test_a_checkpoint_overtaken_by_a_deletion_is_made_anew_and_keeps_the_start(
    cluster: Cluster,
) -> None:
    store = FaultyStore(cluster.store)
    node = await cluster.node(node_id=1, store=store, **SEGMENTS)
    topic = await cluster.topic()
    store.plan = scripted(("put", "/manifest/", Fault.HOLD))
    for n in range(CHECKPOINT_AT):
        await node.send(topic, 0, batch(b"%d" % n))
    await until(lambda: any("/manifest/" in key for _, key in store.requests), "a checkpoint has begun")
    await delete_below(cluster, topic, 9)
    store.release()
    for n in range(CHECKPOINT_AT, RECORDS):
        answer = await node.send(topic, 0, batch(b"%d" % n))
    bounds = await bounds_of(cluster, topic)
    assert (bounds.log_start, bounds.next) == (9, RECORDS)
    assert bounds.meta.manifest_end > 0
    assert await cluster.log(topic) == [b"%d" % n for n in range(RECORDS)]
    assert answer.parts[0].log_start_offset == 9, "it was read before the checkpoint"


async def test_deletions_beside_every_commit_neither_stop_checkpoints_nor_are_undone(
    cluster: Cluster,
) -> None:
    node = await cluster.node(node_id=1, **SEGMENTS)
    topic = await cluster.topic()
    answer = node.send(topic, 0, batch(b"0"))
    for n in range(1, RECORDS):
        await answer
        answer = node.send(topic, 0, batch(b"%d" % n))
        before = await bounds_of(cluster, topic)
        move = build_move(cluster.keyspace, topic, 0, before, before.log_start + 1)
        moved = (await cluster.etcd.txn(move)).succeeded
        assert (await bounds_of(cluster, topic)).log_start == before.log_start + moved
    assert (await answer).base_offset == RECORDS - 1
    assert (await bounds_of(cluster, topic)).meta.manifest_end > 0
    assert await cluster.log(topic) == [b"%d" % n for n in range(RECORDS)]


async def test_an_owner_says_the_new_start_without_a_checkpoint(cluster: Cluster) -> None:
    node = await cluster.node(node_id=1, **SEGMENTS)
    topic, other = await cluster.topic(), await cluster.topic("other")
    await node.send(topic, 0, batch(b"a", b"b", b"c"))
    await node.send(other, 0, batch(b"a"))
    await delete_below(cluster, topic, 2)
    async with asyncio.timeout(PATIENCE_S):
        while (await node.send(topic, 0, batch(b"d"))).parts[0].log_start_offset != 2:
            pass
    assert (await bounds_of(cluster, topic)).meta.manifest_end == 0, "there was no checkpoint"
    assert (await node.send(other, 0, batch(b"b"))).parts[0].log_start_offset == 0


async def test_a_start_that_moved_while_nothing_was_watched_is_read(cluster: Cluster) -> None:
    """Also past a meta that cannot be read, and of a partition that nobody owns here."""
    node = await cluster.node(node_id=1, **SEGMENTS)
    topic, damaged, away = [await cluster.topic(name) for name in ("t", "damaged", "away")]
    for each in (topic, damaged, away):
        await node.send(each, 0, batch(b"a", b"b", b"c"))
        await delete_below(cluster, each, 2)
    await cluster.etcd.put(cluster.keyspace.meta(damaged.topic_id, 0), b"\xff")
    writers = {each.topic_id: Writer() for each in (topic, damaged)}
    owned: Any = {(id_, 0): SimpleNamespace(writer=writer) for id_, writer in writers.items()}
    starts = LogStarts(cluster.etcd, cluster.keyspace, lambda: owned)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(starts.run())
        await until(lambda: writers[topic.topic_id].starts == [2])
        await delete_below(cluster, away, 3)
        await delete_below(cluster, topic, 3)
        await until(lambda: writers[topic.topic_id].starts == [2, 3])
        running.cancel()
    assert writers[damaged.topic_id].starts == []


class Writer:
    def __init__(self) -> None:
        self.starts: list[int] = []

    def moved_log_start(self, start: int) -> None:
        self.starts.append(start)


async def test_a_new_owner_tells_the_start_from_its_first_answer_on(cluster: Cluster) -> None:
    node = await cluster.node(node_id=1, **SEGMENTS)
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"a", b"b", b"c"))).parts[0].log_start_offset == 0
    await delete_below(cluster, topic, 2)
    await node.kill()
    again = await cluster.node(node_id=1, **SEGMENTS)
    answer = await again.send(topic, 0, batch(b"d"))
    assert (answer.base_offset, answer.parts[0].log_start_offset) == (3, 2)

"""`kafscale settle` asks by a key in etcd, waits for the heads, and says what is left and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kafscale.log.heads import Head, encode_head
from kafscale.operations.settle import NEWER, CannotSettle, Left, Outcome, Settle
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

OWNER = "3/boot"
LATE_S = 20.0


async def build(etcd: EtcdClient, keyspace: Keyspace, name: str, *, as_slices: bool = True) -> LogBuilder:
    """Two slices, or two segments."""
    topic = await create_topic(etcd, keyspace, name)
    log = LogBuilder(etcd, keyspace, MemoryStore(), topic, as_slices=as_slices)
    for _ in range(2):
        await log.append(records(3))
    return log


async def lives(etcd: EtcdClient, keyspace: Keyspace, *owned: LogBuilder) -> None:
    await etcd.put(keyspace.live("produce", 3, "boot"), b"")
    for log in owned:
        record = OwnerRecord(epoch=1, owner=OWNER, handoff_to="")
        await etcd.put(keyspace.owner(log.topic.topic_id, 0), encode_owner(record))


def settled(head: Head) -> Head:
    """Only what the command looks at."""
    return replace(head, tail=tuple(replace(seg, bundle=b"", position=0, key="") for seg in head.tail))


@asynccontextmanager
async def owner_of(
    etcd: EtcdClient, keyspace: Keyspace, *logs: LogBuilder, writes_on: bool = False
) -> AsyncIterator[list[str]]:
    """It settles these logs when it is asked to; yields what was asked for."""
    asked: list[str] = []

    async def serve() -> None:
        while not (found := (await etcd.prefix(keyspace.settle_requests_prefix())).kvs):
            await asyncio.sleep(0.01)
        asked.extend(keyspace.parse_settle_request(kv.key) for kv in found)
        for log in logs:
            head = settled(log.head)
            if writes_on:
                seg = replace(log.head.tail[-1], base=head.next)
                head = replace(head, tail=(*head.tail, seg), next=seg.end)
            await etcd.put(keyspace.head(log.topic.topic_id, 0), encode_head(head))

    serving = asyncio.create_task(serve())
    try:
        yield asked
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def run(etcd: EtcdClient, keyspace: Keyspace, *topics: str, timeout_s: float = LATE_S) -> Outcome:
    async with asyncio.timeout(LATE_S):
        outcome = await Settle(etcd, keyspace, lambda *_: None).run(topics, timeout_s)
    assert not (await etcd.prefix(keyspace.settle_requests_prefix())).kvs, "the request ends with its command"
    return outcome


async def test_nothing_to_settle_needs_no_owner(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await build(etcd, keyspace, "plain", as_slices=False)
    assert await run(etcd, keyspace) == Outcome(settled=0, left=(), newer=[])


async def test_it_waits_until_no_head_names_a_slice(etcd: EtcdClient, keyspace: Keyspace) -> None:
    logs = [await build(etcd, keyspace, name) for name in ("a", "b")]
    await lives(etcd, keyspace, *logs)
    async with owner_of(etcd, keyspace, *logs) as asked:
        assert await run(etcd, keyspace) == Outcome(settled=2, left=(), newer=[])
        assert asked == [""]


async def test_topics_can_be_named(etcd: EtcdClient, keyspace: Keyspace) -> None:
    wanted, other = await build(etcd, keyspace, "wanted"), await build(etcd, keyspace, "other")
    await lives(etcd, keyspace, wanted, other)
    async with owner_of(etcd, keyspace, wanted) as asked:
        assert await run(etcd, keyspace, "wanted") == Outcome(settled=1, left=(), newer=[])
        assert asked == ["wanted"]


async def test_what_is_left_at_the_deadline_is_listed_with_the_reason(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    owned, _ = await build(etcd, keyspace, "owned"), await build(etcd, keyspace, "orphaned")
    await lives(etcd, keyspace, owned)
    outcome = await run(etcd, keyspace, timeout_s=0)
    assert outcome.settled == 0
    size = sum(seg.size for seg in owned.head.tail)
    assert sorted(outcome.left, key=lambda left: left.topic) == [
        Left(topic="orphaned", partition=0, slices=2, bytes=size, why="No live instance owns it."),
        Left(
            topic="owned",
            partition=0,
            slices=2,
            bytes=size,
            why="Produce instance 3 owns it and has not settled it: see the log of that instance.",
        ),
    ]


async def test_slices_that_are_written_meanwhile_are_newer(etcd: EtcdClient, keyspace: Keyspace) -> None:
    log = await build(etcd, keyspace, "busy")
    await lives(etcd, keyspace, log)
    async with owner_of(etcd, keyspace, log, writes_on=True):
        outcome = await run(etcd, keyspace)
    assert (outcome.settled, outcome.left) == (1, ())
    [newer] = outcome.newer
    assert (newer.topic, newer.slices, newer.why) == ("busy", 1, NEWER)


async def test_a_deleted_topic_is_not_waited_for(etcd: EtcdClient, keyspace: Keyspace) -> None:
    log = await build(etcd, keyspace, "gone")
    await lives(etcd, keyspace, log)
    asking = asyncio.create_task(run(etcd, keyspace))
    async with asyncio.timeout(LATE_S):
        while not (await etcd.prefix(keyspace.settle_requests_prefix())).kvs:
            await asyncio.sleep(0.01)
    await etcd.delete(keyspace.head(log.topic.topic_id, 0))
    assert not (await asking).left


async def test_a_head_that_cannot_be_read_is_left(etcd: EtcdClient, keyspace: Keyspace) -> None:
    log = await build(etcd, keyspace, "t")
    await lives(etcd, keyspace, log)
    await etcd.put(keyspace.head(log.topic.topic_id, 0), b"\xff\xff")
    [left] = (await run(etcd, keyspace, timeout_s=0)).left
    assert (left.topic, left.slices) == (log.topic.topic_id.hex(), None)
    assert left.why


async def test_without_a_produce_instance_nothing_is_waited_for(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await build(etcd, keyspace, "t")
    with pytest.raises(CannotSettle, match="no produce instance runs"):
        await run(etcd, keyspace)
    with pytest.raises(CannotSettle, match="topic 'other' does not exist"):
        await run(etcd, keyspace, "other")
    assert not (await etcd.prefix(keyspace.settle_requests_prefix())).kvs


async def test_many_heads_are_read_in_pages(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """Whatever lies between them."""
    log = await build(etcd, keyspace, "t")
    await lives(etcd, keyspace, log)
    empty = encode_head(Head(epoch=1, topic="t"))
    for number in range(1, 1_200):
        await etcd.put(keyspace.head(log.topic.topic_id, number), empty)
    await etcd.put(keyspace.head(log.topic.topic_id, 999_999), encode_head(log.head))
    outcome = await run(etcd, keyspace, timeout_s=0)
    assert sorted(left.partition for left in outcome.left) == [0, 999_999]

"""Claims and releases against a real etcd: who may take a partition, and that nobody takes it twice."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from kafscale.log.claims import Claim, Lost, Won, build_claim, build_release, read_claim
from kafscale.log.heads import Head, Meta, OpenTransaction, decode_head, encode_head, encode_meta
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.coordination import Grounds, decode_owner
from kafscale.storage.etcd.client import Delete, EtcdClient, Put, Txn, TxnResult
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.testkit.etcd import etcd_server, keyspace

__all__ = ["etcd_server", "keyspace"]


class Partition:
    """One partition in a real etcd."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self.etcd = etcd
        self.keyspace = keyspace
        self.topic = Topic(name="t", topic_id=TopicId(uuid.uuid4().bytes), partitions=1, epoch_floor=6)
        self.key = keyspace.head(self.topic.topic_id, 0)

    async def create(self) -> Partition:
        await self.save(self.topic)
        return self

    async def save(self, topic: Topic) -> None:
        put = await self.etcd.put(self.keyspace.topic("t"), encode_topic(topic))
        self.topic = replace(topic, mod_revision=put.revision)

    async def head(self) -> tuple[Head | None, int]:
        found = await self.etcd.get(self.key)
        return (decode_head(found.value), found.mod_revision) if found else (None, 0)

    async def prepare(self, me: str, why: Grounds) -> Claim:
        head, revision = await self.head()
        return build_claim(self.keyspace, self.topic, 0, head=head, revision=revision, me=me, why=why)

    async def submit(self, claim: Claim) -> Won | Lost:
        result = await self.etcd.txn(Txn(success=(claim.txn,)))
        nested = result.responses[0]
        assert isinstance(nested, TxnResult)
        return read_claim(claim, nested, result.revision)

    async def claim(self, me: str, why: Grounds = Grounds.FIRST) -> Won | Lost:
        return await self.submit(await self.prepare(me, why))

    async def live(self, instance: str) -> bytes:
        node, _, boot = instance.partition("/")
        key = self.keyspace.live("produce", int(node), boot)
        await self.etcd.put(key, b"x")
        return key


@pytest_asyncio.fixture
async def partition(etcd_server: EtcdProcess, keyspace: Keyspace) -> AsyncIterator[Partition]:
    client = EtcdClient.connect([etcd_server.endpoint])
    yield await Partition(client, keyspace).create()
    await client.close()


async def test_the_first_claim_makes_the_head_above_the_epoch_floor(partition: Partition) -> None:
    won = await partition.claim("1/a")
    assert isinstance(won, Won)
    assert (won.head, won.revision) == await partition.head()
    assert (won.head.epoch, won.head.owner, won.head.topic, won.head.next) == (7, "1/a", "t", 0)
    assert (won.meta, won.meta_revision) == (Meta(), 0)


async def test_head_and_owner_record_are_written_in_one_revision(partition: Partition) -> None:
    won = await partition.claim("1/a")
    assert isinstance(won, Won)
    record = await partition.etcd.get(partition.keyspace.owner(partition.topic.topic_id, 0))
    assert record is not None
    assert record.mod_revision == won.revision
    assert (decode_owner(record.value).epoch, decode_owner(record.value).owner) == (7, "1/a")


async def test_of_claimers_that_race_one_wins(partition: Partition) -> None:
    claims = [await partition.prepare(f"{n}/x", Grounds.FIRST) for n in range(8)]
    outcomes = await asyncio.gather(*(partition.submit(claim) for claim in claims))
    winners = [outcome for outcome in outcomes if isinstance(outcome, Won)]
    assert len(winners) == 1
    losers = [outcome for outcome in outcomes if isinstance(outcome, Lost)]
    assert {loser.head.owner for loser in losers if loser.head} == {winners[0].head.owner}


async def test_a_claim_raises_the_epoch_and_keeps_the_log(partition: Partition) -> None:
    await partition.claim("1/a")
    head, revision = await partition.head()
    assert head is not None
    begun = (OpenTransaction(producer_id=7, epoch=1, number=2, first=6),)
    longer = replace(head, next=10, lso=6, max_ts=5, open=begun, transactional=True)
    await partition.etcd.put(partition.key, encode_head(longer))
    await partition.etcd.put(
        partition.keyspace.meta(partition.topic.topic_id, 0), encode_meta(Meta(log_start=3, manifest_end=3))
    )
    won = await partition.claim("2/b", Grounds.OWNER_GONE)
    assert isinstance(won, Won)
    assert won.head == replace(longer, epoch=8, owner="2/b")
    assert won.meta == Meta(log_start=3, manifest_end=3)
    assert won.meta_revision > revision


async def test_an_owner_that_came_back_to_life_is_not_robbed(partition: Partition) -> None:
    await partition.claim("1/a")
    claim = await partition.prepare("2/b", Grounds.OWNER_GONE)
    await partition.live("1/a")
    lost = await partition.submit(claim)
    assert isinstance(lost, Lost)
    assert lost.head is not None
    assert lost.head.owner == "1/a"


async def test_a_commit_in_between_makes_the_claim_look_again(partition: Partition) -> None:
    await partition.claim("1/a")
    claim = await partition.prepare("2/b", Grounds.OWNER_GONE)
    head, _ = await partition.head()
    assert head is not None
    committed = await partition.etcd.put(partition.key, encode_head(replace(head, next=5, lso=5)))
    lost = await partition.submit(claim)
    assert isinstance(lost, Lost)
    assert lost.head is not None
    assert (lost.head.next, lost.revision) == (5, committed.revision)
    again = await partition.claim("2/b", Grounds.OWNER_GONE)
    assert isinstance(again, Won)
    assert again.head.next == 5


@pytest.mark.parametrize("change", ["deleting", "config", "gone"])
async def test_a_topic_that_changed_is_not_claimed_on_its_old_record(
    partition: Partition, change: str
) -> None:
    claim = await partition.prepare("1/a", Grounds.FIRST)
    if change == "gone":
        await partition.etcd.delete(partition.keyspace.topic("t"))
    elif change == "deleting":
        await partition.save(replace(partition.topic, state=TopicState.DELETING))
    else:
        await partition.save(replace(partition.topic, configs={"retention.ms": "1"}))
    lost = await partition.submit(claim)
    assert isinstance(lost, Lost)
    assert lost.topic_revision == (0 if change == "gone" else partition.topic.mod_revision)
    assert await partition.head() == (None, 0)


async def test_a_claim_sent_twice_is_won_once_and_known_as_won(partition: Partition) -> None:
    """The first answer was lost: the second one must not be read as a defeat."""
    claim = await partition.prepare("1/a", Grounds.FIRST)
    first = await partition.submit(claim)
    second = await partition.submit(claim)
    assert first == second
    head, _ = await partition.head()
    assert head is not None
    assert head.epoch == 7


async def test_a_later_claim_of_the_same_boot_is_not_taken_for_this_one(partition: Partition) -> None:
    first = await partition.prepare("1/a", Grounds.FIRST)
    await partition.submit(first)
    await partition.claim("1/a", Grounds.MINE)
    assert isinstance(await partition.submit(first), Lost)


async def test_a_release_leaves_no_owner_and_names_the_successor(partition: Partition) -> None:
    won = await partition.claim("1/a")
    assert isinstance(won, Won)
    released = replace(won.head, owner="", handoff_to="2")
    txn = build_release(
        partition.keyspace, partition.topic.topic_id, 0, released=released, revision=won.revision
    )
    assert (await partition.etcd.txn(txn)).succeeded
    assert (await partition.head())[0] == released
    record = await partition.etcd.get(partition.keyspace.owner(partition.topic.topic_id, 0))
    assert record is not None
    assert decode_owner(record.value).handoff_to == "2"
    assert not (await partition.etcd.txn(txn)).succeeded


async def test_fifty_claims_travel_in_one_request(partition: Partition) -> None:
    topic = replace(partition.topic, partitions=50)
    await partition.save(topic)
    claims = [
        build_claim(
            partition.keyspace, partition.topic, n, head=None, revision=0, me="1/a", why=Grounds.FIRST
        )
        for n in range(50)
    ]
    result = await partition.etcd.txn(Txn(success=tuple(claim.txn for claim in claims)))
    for claim, nested in zip(claims, result.responses, strict=True):
        assert isinstance(nested, TxnResult)
        assert isinstance(read_claim(claim, nested, result.revision), Won)


async def test_one_lost_claim_of_a_request_costs_the_others_nothing(partition: Partition) -> None:
    await partition.save(replace(partition.topic, partitions=2))
    claims = [
        build_claim(
            partition.keyspace, partition.topic, n, head=None, revision=0, me="1/a", why=Grounds.FIRST
        )
        for n in range(2)
    ]
    head = encode_head(Head(epoch=9, topic="t", owner="3/z"))
    await partition.etcd.txn(Txn(success=(Put(partition.key, head),)))
    result = await partition.etcd.txn(Txn(success=tuple(claim.txn for claim in claims)))
    outcomes = [
        read_claim(claim, nested, result.revision)
        for claim, nested in zip(claims, result.responses, strict=True)
        if isinstance(nested, TxnResult)
    ]
    assert [type(outcome) for outcome in outcomes] == [Lost, Won]


async def test_a_deleted_head_is_not_brought_back_by_its_old_owner(partition: Partition) -> None:
    won = await partition.claim("1/a")
    assert isinstance(won, Won)
    claim = await partition.prepare("1/a", Grounds.MINE)
    await partition.etcd.txn(Txn(success=(Delete(partition.key),)))
    assert isinstance(await partition.submit(claim), Lost)
    assert await partition.head() == (None, 0)

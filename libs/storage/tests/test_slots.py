"""Slots against a real etcd: a group is always in the same one, and a slot has one coordinator that may write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.coordination import NO_NODE, Grounds, decode_owner, encode_owner, rendezvous
from kafscale.storage.etcd.client import EtcdClient, Put, Txn, TxnResult
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.slots import (
    PLACE,
    ROLE,
    SLOTS,
    Slot,
    build_slot_claim,
    build_slot_release,
    read_slot_claim,
    slot_fence,
    slot_in,
    slot_of,
)
from kafscale.testkit.etcd import etcd_server, keyspace

__all__ = ["etcd_server", "keyspace"]

SLOT = SlotId(7)
ALL = [SlotId(number) for number in range(SLOTS)]
PLAN = [0, 0, 2, 0, 2, 0, 0, 1, 2, 2, 0, 2]


def test_a_group_is_in_the_same_slot_in_every_version() -> None:
    assert SLOTS == 64
    assert [slot_of(group) for group in ("", "orders", "größe", "connect-sink")] == [0, 46, 9, 61]
    assert slot_of("123456789") == 0xCBF43926 % SLOTS, "the check value of CRC-32"


@given(st.text(max_size=40))
def test_every_group_has_a_slot(group: str) -> None:
    assert slot_of(group) in ALL


def test_groups_spread_over_the_slots() -> None:
    shares = Counter(slot_of(f"group-{number}") for number in range(6_400))
    assert len(shares) == SLOTS
    assert max(shares.values()) < 150


def test_the_plan_never_changes_between_versions_and_spreads_the_slots() -> None:
    assert [rendezvous(PLACE, slot, range(3)) for slot in ALL[:12]] == PLAN
    shares = Counter(rendezvous(PLACE, slot, range(3)) for slot in ALL)
    assert all(14 <= shares[node] <= 30 for node in range(3)), shares
    assert rendezvous(PLACE, SLOT, ()) == NO_NODE


def test_only_the_slots_of_a_node_that_left_move() -> None:
    before = {slot: rendezvous(PLACE, slot, range(4)) for slot in ALL}
    after = {slot: rendezvous(PLACE, slot, range(3)) for slot in ALL}
    assert {slot for slot in ALL if before[slot] != after[slot]} == {
        slot for slot in ALL if before[slot] == 3
    }


@given(
    st.integers(1, 1 << 30),
    st.just("") | st.from_regex(r"[0-9]{1,9}/[0-9a-z]+", fullmatch=True),
    st.just("") | st.integers(0, 1 << 30).map(str),
)
def test_a_record_comes_back_as_it_went_in(epoch: int, owner: str, handoff_to: str) -> None:
    slot = Slot(epoch=epoch, owner=owner, handoff_to=handoff_to)
    assert decode_owner(encode_owner(slot)) == slot


class Held:
    """One slot in a real etcd."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self.etcd = etcd
        self.keyspace = keyspace

    async def read(self) -> tuple[Slot | None, int]:
        found = await self.etcd.get(self.keyspace.slot_claim(SLOT))
        return (decode_owner(found.value), found.mod_revision) if found else (None, 0)

    async def prepare(self, me: str, why: Grounds) -> tuple[Slot, Txn]:
        slot, revision = await self.read()
        return build_slot_claim(self.keyspace, SLOT, slot=slot, revision=revision, me=me, why=why)

    async def submit(self, claim: tuple[Slot, Txn]) -> int | None:
        claimed, txn = claim
        result = await self.etcd.txn(txn)
        return read_slot_claim(claimed, result, result.revision)

    async def claim(self, me: str, why: Grounds = Grounds.FIRST) -> tuple[Slot, int]:
        claim = await self.prepare(me, why)
        revision = await self.submit(claim)
        assert revision is not None
        return claim[0], revision

    async def write(self, revision: int) -> bool:
        """A coordinator's write under the slot, by the claim of this revision."""
        put = Put(self.keyspace.group(SLOT, "g"), b"x")
        return (await self.etcd.txn(Txn((slot_fence(self.keyspace, SLOT, revision),), (put,)))).succeeded


@pytest_asyncio.fixture
async def held(etcd_server: EtcdProcess, keyspace: Keyspace) -> AsyncIterator[Held]:
    client = EtcdClient.connect([etcd_server.endpoint])
    yield Held(client, keyspace)
    await client.close()


async def test_the_first_claim_makes_the_record(held: Held) -> None:
    won = await held.claim("1/a")
    assert won == await held.read()
    assert won[0] == Slot(epoch=1, owner="1/a")


async def test_of_claimers_that_race_one_wins(held: Held) -> None:
    claims = [await held.prepare(f"{n}/x", Grounds.FIRST) for n in range(8)]
    outcomes = await asyncio.gather(*(held.submit(claim) for claim in claims))
    ((claimed, revision),) = [
        (claim[0], one) for claim, one in zip(claims, outcomes, strict=True) if one is not None
    ]
    assert await held.read() == (claimed, revision)


async def test_whoever_lost_the_slot_writes_nothing_under_it_any_more(held: Held) -> None:
    _, first = await held.claim("1/a")
    assert await held.write(first)
    slot, second = await held.claim("2/b", Grounds.OWNER_GONE)
    assert slot == Slot(epoch=2, owner="2/b")
    assert not await held.write(first)
    assert await held.write(second)


async def test_an_owner_that_came_back_to_life_is_not_robbed(held: Held) -> None:
    await held.claim("1/a")
    claim = await held.prepare("2/b", Grounds.OWNER_GONE)
    await held.etcd.put(held.keyspace.live(ROLE, 1, "a"), b"x")
    assert await held.submit(claim) is None
    assert (await held.read())[0] == Slot(epoch=1, owner="1/a")


async def test_an_instance_of_another_role_keeps_no_slot(held: Held) -> None:
    await held.claim("1/a")
    await held.etcd.put(held.keyspace.live("produce", 1, "a"), b"x")
    assert (await held.claim("2/b", Grounds.OWNER_GONE))[0].owner == "2/b"


async def test_a_claim_sent_twice_is_won_once_and_known_as_won(held: Held) -> None:
    claim = await held.prepare("1/a", Grounds.FIRST)
    assert await held.submit(claim) == await held.submit(claim)
    assert (await held.read())[0] == Slot(epoch=1, owner="1/a")


async def test_a_later_claim_of_the_same_boot_is_not_taken_for_this_one(held: Held) -> None:
    first = await held.prepare("1/a", Grounds.FIRST)
    await held.submit(first)
    await held.claim("1/a", Grounds.MINE)
    assert await held.submit(first) is None


async def test_a_release_leaves_no_owner_and_names_the_successor(held: Held) -> None:
    slot, won_at = await held.claim("1/a")
    release = build_slot_release(held.keyspace, SLOT, slot=slot, revision=won_at, handoff_to="2")
    assert (await held.etcd.txn(release)).succeeded
    released, revision = await held.read()
    assert released == Slot(epoch=1, handoff_to="2")
    assert not await held.write(won_at)
    again = await held.etcd.txn(release)
    assert not again.succeeded
    assert slot_in(again) == (released, revision)
    assert (await held.claim("2/b", Grounds.HANDED_OVER))[0] == Slot(epoch=2, owner="2/b")


async def test_all_slots_are_claimed_in_one_request_and_each_for_itself(held: Held) -> None:
    await held.etcd.put(held.keyspace.slot_claim(SLOT), encode_owner(Slot(epoch=4, owner="9/z")))
    claims = [
        build_slot_claim(held.keyspace, slot, slot=None, revision=0, me="1/a", why=Grounds.FIRST)
        for slot in ALL
    ]
    result = await held.etcd.txn(Txn(success=tuple(txn for _, txn in claims)))
    outcomes = [
        read_slot_claim(claimed, nested, result.revision)
        for (claimed, _), nested in zip(claims, result.responses, strict=True)
        if isinstance(nested, TxnResult)
    ]
    lost = [slot for slot, outcome in zip(ALL, outcomes, strict=True) if outcome is None]
    assert lost == [SLOT]
    assert await held.read() == (Slot(epoch=4, owner="9/z"), result.revision - 1)


@pytest.mark.parametrize("why", [Grounds.MINE, Grounds.UNOWNED])
async def test_only_a_claim_from_an_owner_that_is_gone_asks_whether_it_is_gone(
    held: Held, why: Grounds
) -> None:
    slot, revision = await held.claim("1/a")
    claimed, txn = build_slot_claim(held.keyspace, SLOT, slot=slot, revision=revision, me="2/b", why=why)
    assert len(txn.compare) == 1
    assert replace(claimed, epoch=1) == Slot(epoch=1, owner="2/b")

"""Slots change hands: who is preferred has them in the end, a live owner is never robbed, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest
from kafscale.coordinator.classic.model import Abandon, Token
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.server import Coordination
from kafscale.coordinator.slots import LOADED_BYTES, LOADED_TOGETHER, Held, Slots, World, turns
from kafscale.storage.coordination import decode_owner, encode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, KeyValue
from kafscale.storage.etcd.transport import MESSAGE_BYTES_MAX
from kafscale.storage.groups import ClassicGroup, GroupRecord, encode_group
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.membership.members import InstanceState
from kafscale.storage.membership.records import encode_live
from kafscale.storage.slots import Slot, slot_of

from services.coordinator.tests.shell_harness import Coordinator, until

ETCDS_LARGEST_VALUE = 3 << 19


async def record(etcd: EtcdClient, keys: Keyspace, slot: int) -> Slot:
    kv = await etcd.get(keys.slot_claim(SlotId(slot)))
    assert kv is not None
    return decode_owner(kv.value)


async def test_the_first_instance_claims_all_slots(etcd: EtcdClient, keyspace: Keyspace) -> None:
    one = await Coordinator(etcd, keyspace).start()
    await one.has(64)
    assert (await record(etcd, keyspace, 63)) == Slot(epoch=1, owner=one.instance.id)
    await one.die()


async def test_a_second_instance_gets_its_share_and_no_slot_has_two_owners(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = await Coordinator(etcd, keyspace, 1).start()
    await one.has(64)
    two = await Coordinator(etcd, keyspace, 2).start()
    await until(
        lambda: len(two.slots) > 10 and not one.slots & two.slots and len(one.slots | two.slots) == 64
    )
    for slot in two.slots:
        assert (await record(etcd, keyspace, slot)).epoch == 2
    await one.die()
    await two.die()


async def test_on_sigterm_every_slot_goes_to_the_others_at_once(etcd: EtcdClient, keyspace: Keyspace) -> None:
    one = await Coordinator(etcd, keyspace, 1).start()
    two = await Coordinator(etcd, keyspace, 2).start()
    await until(lambda: len(two.slots) > 10 and len(one.slots | two.slots) == 64)
    await one.drain()
    assert not one.slots
    await two.has(64)
    await one.die()
    await two.die()


async def test_the_last_instance_leaves_slots_without_an_owner(etcd: EtcdClient, keyspace: Keyspace) -> None:
    one = await Coordinator(etcd, keyspace).start()
    await one.has(64)
    await one.leave()
    assert one.metric("slots_lost_total") == 0
    assert (await record(etcd, keyspace, 7)) == Slot(epoch=1)


async def test_a_dead_owner_is_robbed_when_its_lease_ends_and_not_before(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = await Coordinator(etcd, keyspace, 1).start()
    await one.has(64)
    await one.die()
    two = await Coordinator(etcd, keyspace, 2).start()
    await until(lambda: two.parts.live.by_node(1) is not None)
    assert not two.slots
    await one.lease_ends()
    await two.has(64)
    assert (await record(etcd, keyspace, 0)) == Slot(epoch=2, owner=two.instance.id)
    await two.die()


async def test_a_slot_that_another_has_claimed_is_dropped_when_it_is_seen(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = await Coordinator(etcd, keyspace, 1).start()
    await one.has(64)
    foreign = Slot(epoch=9, owner="2/boot2")
    held = one.parts.slots.held(SlotId(5))
    await etcd.put(keyspace.slot_claim(SlotId(5)), encode_owner(foreign))
    await until(lambda: one.parts.slots.held(SlotId(5)) is not held)
    # That owner is not alive, so it comes back, in a new epoch.
    await one.has(64)
    assert (await record(etcd, keyspace, 5)) == Slot(epoch=10, owner=one.instance.id)
    assert one.metric("slots_lost_total") == 1
    await one.die()


@pytest.mark.parametrize("node_id", [1, 2])
async def test_a_new_boot_of_a_node_takes_its_slots_back(
    etcd: EtcdClient, keyspace: Keyspace, node_id: int
) -> None:
    one = await Coordinator(etcd, keyspace, node_id).start()
    await one.has(64)
    await one.die()
    again = await Coordinator(etcd, keyspace, node_id).start()
    await again.has(64)
    assert (await record(etcd, keyspace, 1)).epoch == 2
    await again.die()


async def test_a_slot_in_the_name_of_who_does_not_serve_it_is_given_away(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = await Coordinator(etcd, keyspace, 1).start()
    two = await Coordinator(etcd, keyspace, 2).start()
    await until(lambda: len(two.slots) > 10 and len(one.slots | two.slots) == 64)
    slot = min(two.slots)
    await etcd.put(keyspace.slot_claim(SlotId(slot)), encode_owner(Slot(epoch=9, owner=one.instance.id)))
    await until(lambda: slot not in two.slots)
    await until(lambda: slot in two.slots)
    assert (await record(etcd, keyspace, slot)).epoch == 10
    await one.die()
    await two.die()


async def test_a_claim_whose_answer_comes_after_the_next_claim_is_not_believed(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = Coordinator(etcd, keyspace, 1)
    other = replace(one.instance, node_id=2, boot_id="boot2", state=InstanceState.STARTING)
    await etcd.put(keyspace.live("coordinator", 2, "boot2"), encode_live(other))
    one.door.way_back.clear()
    await one.start()
    table = one.parts.table.items
    key = keyspace.slot_claim(SlotId(5))
    await until(lambda: len(table) == 64)
    await etcd.put(key, encode_owner(Slot(epoch=2, owner=other.id)))
    await until(lambda: table[key].slot.epoch == 2)
    one.door.way_back.set()
    await until(lambda: len(one.slots - {5}) == 63)
    await until(lambda: one.parts.slots.held(SlotId(5)) is None)
    await one.die()


async def test_the_groups_of_a_slot_are_read_in_pages_that_fit_into_an_answer_of_etcd(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    one = Coordinator(etcd, keyspace)
    names = [name for n in range(8_000) if slot_of(name := f"g{n}") == 5][:100]
    for name in names:
        await etcd.put(
            keyspace.group(SlotId(5), name), encode_group(GroupRecord(group=name, state=ClassicGroup()))
        )
    pages: list[int] = []

    async def prefix(key: bytes, *, page_keys: int = 1_000, **how: Any) -> Any:
        if key.startswith(keyspace.groups_prefix()):
            pages.append(page_keys)
        return await etcd.prefix(key, page_keys=page_keys, **how)

    one.door.prefix = prefix  # type: ignore[attr-defined]
    await one.start()
    await one.has(64)
    assert len([*one.parts.groups.all()]) == 100
    assert max(pages) * ETCDS_LARGEST_VALUE <= MESSAGE_BYTES_MAX
    await one.die()


class Kind:
    """Contents that note when they came and went."""

    def __init__(self, keys: Keyspace, name: str, events: list[str]) -> None:
        self.keys, self.name, self.events = keys, name, events

    def prefix(self, slot_id: SlotId) -> bytes:
        return self.keys.root() + f"{self.name}/{slot_id}/".encode()

    def load(self, held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        if held.slot_id == 5:
            self.events.append(f"load {self.name} {[kv.value for kv in kvs]}")
            yield
            assert not held.loaded

    def lose(self, slot_id: SlotId) -> None:
        if slot_id == 5:
            self.events.append(f"lose {self.name}")


async def test_a_slot_counts_as_loaded_when_all_its_kinds_were_read_and_each_is_lost_with_it(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.coordinator.slots.LOAD_RETRY_FIRST_MS", 1)
    events: list[str] = []
    kinds = [Kind(keyspace, "a", events), Kind(keyspace, "b", events)]
    await etcd.put(kinds[0].prefix(SlotId(5)) + b"k", b"1")
    one = Coordinator(etcd, keyspace)
    may_read_b, asked_b = asyncio.Event(), asyncio.Event()

    async def prefix(key: bytes, **how: Any) -> Any:
        if key == kinds[1].prefix(SlotId(5)):
            if not asked_b.is_set():
                asked_b.set()
                raise EtcdRejected(grpc.StatusCode.INTERNAL, "it is away", "etcd")
            await may_read_b.wait()
        return await etcd.prefix(key, **how)

    one.door.prefix = prefix  # type: ignore[attr-defined]
    monkeypatch.setattr(Coordination, "_contents", lambda _self: kinds)
    await one.start()
    await one.has(63)
    await asked_b.wait()
    assert one.parts.slots.is_loading
    assert not events
    may_read_b.set()
    await one.has(64)
    assert events == ["load a [b'1']", "load b []"]
    await one.drain()
    assert events[2:] == ["lose a", "lose b"]
    await one.die()


async def test_a_slot_that_is_lost_while_it_is_decoded_is_decoded_no_further(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    kinds = [Kind(keyspace, "a", events), Kind(keyspace, "b", events)]
    one = Coordinator(etcd, keyspace)
    load = kinds[0].load

    def load_and_lose(held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        yield from load(held, kvs)
        if held.slot_id == 5 and not one.parts.slots.lost_count:
            one.parts.slots.lost(held)
            yield

    kinds[0].load = load_and_lose  # type: ignore[method-assign]
    monkeypatch.setattr(Coordination, "_contents", lambda _self: kinds)
    await one.start()
    await one.has(64)
    assert events == ["load a []", "lose a", "lose b", "load a []", "load b []"]
    await one.die()


def test_what_is_decoded_in_one_turn_of_the_loop_has_a_bound() -> None:
    sizes = [1] * 1_000 + [LOADED_BYTES] * 2 + [LOADED_BYTES // 3] * 10
    found = list(turns(sizes, int))
    assert [size for some in found for size in some] == sizes
    assert max(map(len, found)) == LOADED_TOGETHER
    assert max(map(sum, found)) <= LOADED_BYTES
    assert list(turns([5 * LOADED_BYTES] * 2, int)) == [[5 * LOADED_BYTES]] * 2


async def test_a_claim_that_etcd_refuses_is_not_repeated_with_each_look(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rests, for longer each time, until the record is another."""
    monkeypatch.setattr("kafscale.coordinator.slots.REST_FIRST_MS", 3_600_000)
    monkeypatch.setattr("kafscale.coordinator.slots.REST_MAX_MS", 3_600_000)
    monkeypatch.setattr("kafscale.coordinator.slots.SETTLE_S", 0)
    one = Coordinator(etcd, keyspace)
    one.door.before = [
        EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, "no right", "etcd") for _ in range(1_000)
    ]
    await one.start()
    slots = one.parts.slots
    await until(lambda: len(slots._rests) == 64)
    refused = len(one.door.sent)
    for _ in range(20):
        slots._changed.set()
        await until(lambda: not slots._changed.is_set())
    assert len(one.door.sent) == refused
    one.door.before = []
    await etcd.put(keyspace.slot_claim(SlotId(5)), encode_owner(Slot(epoch=3, owner="")))
    await until(lambda: one.slots == {5})  # and no other: the rest of them is still refused
    await one.die()


async def test_work_that_is_cancelled_before_it_began_leaves_nothing_half_begun(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """Python warns of a coroutine that was made and never awaited; a warning is a failure here."""
    one = await Coordinator(etcd, keyspace).start()
    await one.has(64)
    begun: list[asyncio.Future[None]] = []
    world = World(
        etcd=etcd,
        keyspace=keyspace,
        live=one.parts.live,
        table=one.parts.table,
        committer=one.parts.committer,
        me=one.instance.id,
    )
    slots = Slots(world, [one.parts.groups], lambda work: begun.append(asyncio.ensure_future(work)))
    looking = asyncio.ensure_future(slots.run())
    await asyncio.sleep(0)  # it has looked, and what it began comes after us
    for task in (looking, *begun):
        task.cancel()
    assert len(begun) == 64
    await asyncio.gather(looking, *begun, return_exceptions=True)
    await one.die()


async def test_a_slot_is_given_away_after_its_groups_have_ended(etcd: EtcdClient, keyspace: Keyspace) -> None:
    one = await Coordinator(etcd, keyspace).start()
    await one.has(64)
    held = one.parts.slots.held(SlotId(slot_of("g")))
    actor = one.parts.groups.joined("g")
    one.door.gate.clear()
    giving = asyncio.ensure_future(one.drain())
    await until(lambda: one.parts.slots.held(SlotId(slot_of("g"))) is not held)
    with pytest.raises(GroupFailed):
        one.parts.groups.find("g")
    with pytest.raises(GroupFailed):
        actor.ask(lambda token: Abandon(token=Token(token)))
    assert (await record(etcd, keyspace, slot_of("g"))).owner == one.instance.id
    one.door.gate.set()
    await giving
    assert (await record(etcd, keyspace, slot_of("g"))).owner == ""
    await one.die()

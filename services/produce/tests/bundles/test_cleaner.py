"""What an instance deletes of its own bundles, and what keeps it from it: damage, a store that fails, a lost etcd."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from kafscale.log.bundle import SliceEntry
from kafscale.log.heads import Head, encode_head
from kafscale.produce.bundles.cleaner import Cleaner
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.runtime.clock import SystemClock
from kafscale.storage.etcd.client import Delete, EtcdClient, Put, Txn
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import witnesses_prefix
from kafscale.storage.keys import BundleId, Keyspace, PartitionKey, TopicId, prefix_end
from kafscale.storage.objects import StoreError, StoreUnavailable
from kafscale.storage.objects.memory import MemoryStore
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.testkit.objects import Fault, FaultyStore, scripted

TOPIC = TopicId(bytes(16))
WHERE: PartitionKey = (TOPIC, 0)
BUNDLE = BundleId(bytes(15) + b"a")


def entry(base: int = 10, last: int = 19, epoch: int = 3) -> SliceEntry:
    return SliceEntry(TOPIC, 0, epoch, base, last, 32, 100, 1, last - base + 1, 1, 0, 0)


def head(end: int, epoch: int = 3) -> Head:
    return Head(epoch=epoch, topic="t", next=end)


@dataclass
class World:
    """An instance with one bundle, of one slice, which is acknowledged; its partition has moved away."""

    etcd: EtcdClient
    keys: Keyspace
    store: FaultyStore

    async def begin(self) -> World:
        self.history = History(self.etcd, self.keys, self.store)
        await self.history.verify()
        self.own = OwnBundles(grace_ms=0)
        self.cleaner = Cleaner(
            self.own,
            history=self.history,
            store=self.store,
            keyspace=self.keys,
            clock=SystemClock(),
            owned=list,
            ask_every_s=900,
            grace_s=0,
        )
        await self.store.put(self.keys.bundle_key(BUNDLE), [b"records"])
        self.own.sealed(BUNDLE, [entry()])
        self.own.answered(BUNDLE, 0)
        self.own.acknowledged(WHERE, BUNDLE)
        return self

    async def has_head(self, value: Head | bytes) -> None:
        await self.etcd.put(self.keys.head(*WHERE), value if isinstance(value, bytes) else encode_head(value))

    async def cleaned(self) -> bool:
        """Whether the bundle is gone after a look."""
        await self.cleaner.ask()
        await self.cleaner.delete()
        return await self.store.head(self.keys.bundle_key(BUNDLE)) is None

    async def loses_etcd(self) -> None:
        await self.etcd.txn(Txn(success=(Delete(self.keys.root(), prefix_end(self.keys.root())),)))


@pytest.fixture
async def world(etcd: EtcdClient, keyspace: Keyspace) -> World:
    return await World(etcd, keyspace, FaultyStore(MemoryStore())).begin()


async def test_a_bundle_goes_when_another_owner_has_settled_its_slice(world: World) -> None:
    await world.has_head(head(20, epoch=4))
    assert await world.cleaned()
    assert len(world.own) == 0


async def test_a_head_that_cannot_be_read_keeps_it(world: World) -> None:
    await world.has_head(b"\xff")
    assert not await world.cleaned()
    await world.has_head(head(20))
    assert await world.cleaned()


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.DROP_REPLY])
async def test_a_deletion_without_an_answer_is_sent_again_at_the_next_look(
    world: World, fault: Fault
) -> None:
    await world.has_head(head(20))
    world.store.plan = scripted(("delete", ".kfb", fault))
    await world.cleaned()
    assert len(world.own) == 1
    await world.cleaned()
    assert (len(world.own), await world.store.head(world.keys.bundle_key(BUNDLE))) == (0, None)


async def test_a_store_that_fails_as_a_whole_loses_no_bundle_from_the_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.has_head(head(20))
    with monkeypatch.context() as patched:

        async def away(_: object) -> list[bool | StoreError]:
            raise StoreUnavailable("")

        patched.setattr(world.store, "delete_many", away)
        assert not await world.cleaned()
    assert await world.cleaned()


async def test_without_a_head_only_the_mark_of_the_deletion_shows_that_the_topic_is_gone(
    world: World,
) -> None:
    assert not await world.cleaned()
    await world.store.put(deletion_mark(world.keys, TopicId(b"x" * 16), 0), [b"another"])
    assert not await world.cleaned()
    await world.store.put(deletion_mark(world.keys, TOPIC, 0), [b"t"])
    assert await world.cleaned()


async def test_an_etcd_that_lost_its_data_costs_nothing(world: World) -> None:
    await world.store.put(deletion_mark(world.keys, TOPIC, 0), [b"t"])
    await world.loses_etcd()
    assert not await world.cleaned()
    assert world.history.stopped is not None


async def test_what_was_dead_before_etcd_went_back_stays_too(world: World) -> None:
    """A roll-forward may choose it: it does not know what was settled last."""
    await world.has_head(head(20))
    await world.cleaner.ask()
    assert len(world.own.dead) == 1
    await world.loses_etcd()
    await world.cleaner.delete()
    assert await world.store.head(world.keys.bundle_key(BUNDLE)) is not None
    assert len(world.own.dead) == 1


async def test_a_head_of_the_wrong_etcd_counts_for_nothing_even_if_the_right_one_is_back(
    world: World,
) -> None:
    """The reads come with the proof, so it does not matter what is verified before and after them."""
    prefix = witnesses_prefix(world.keys)
    right = (await world.etcd.prefix(prefix)).kvs
    await world.has_head(head(30, epoch=9))
    await world.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
    await world.cleaner.ask()
    await world.etcd.txn(Txn(success=tuple(Put(kv.key, kv.value) for kv in right)))
    await world.cleaner.delete()
    assert await world.store.head(world.keys.bundle_key(BUNDLE)) is not None
    assert len(world.own.elsewhere([])) == 1, "it is asked for again"


@pytest.mark.parametrize("older", [head(10), head(19), head(10, epoch=2), head(19, epoch=4)])
async def test_a_head_without_the_acknowledged_slice_stops_all_deletions(world: World, older: Head) -> None:
    await world.has_head(older)
    assert not await world.cleaned()
    assert world.history.stopped is not None
    await world.has_head(head(20))
    assert not await world.cleaned(), "until a roll-forward"

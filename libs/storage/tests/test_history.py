"""A process and the history of its etcd: it goes on in the one that the bucket knows, and in no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from kafscale.storage.etcd.client import Delete, EtcdClient, Put, Range, Txn
from kafscale.storage.history import history as module
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import (
    KEYS_KEPT,
    OBJECTS_KEPT,
    WentBack,
    history_prefix,
    witnesses_prefix,
)
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.objects import StoreUnavailable
from kafscale.storage.objects.memory import MemoryStore

Make = Callable[[], History]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, clock: Clock) -> Make:
    return lambda: History(etcd, keyspace, store, wall_ms=clock)


@pytest.fixture
async def history(make: Make) -> History:
    made = make()
    await made.verify()
    return made


async def saved(etcd: EtcdClient, keys: Keyspace) -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in (await etcd.prefix(keys.root())).kvs}


async def restore(etcd: EtcdClient, keys: Keyspace, state: dict[bytes, bytes]) -> None:
    """The values of then; the revisions go on, as after `etcdutl snapshot restore --bump-revision`."""
    await etcd.txn(Txn(success=(Delete(keys.root(), prefix_end(keys.root())),)))
    await etcd.txn(Txn(success=tuple(Put(key, value) for key, value in state.items())))


async def names(store: MemoryStore, keys: Keyspace) -> list[str]:
    prefix = history_prefix(keys)
    return [info.key.removeprefix(prefix) async for info in store.list(prefix)]


async def in_etcd(etcd: EtcdClient, keys: Keyspace) -> list[str]:
    prefix = witnesses_prefix(keys)
    return [kv.key.removeprefix(prefix).decode() for kv in (await etcd.prefix(prefix)).kvs]


async def claims(etcd: EtcdClient, keys: Keyspace, history: History) -> bool:
    """Whether a transaction with the fence is applied."""
    txn = Txn(compare=(await history.fenced(),), success=(Put(keys.cluster(), b"x"),))
    return (await etcd.txn(txn)).succeeded


async def test_the_first_process_makes_the_first_witness_and_all_agree(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, make: Make
) -> None:
    await asyncio.gather(*(make().verify() for _ in range(4)))
    assert await in_etcd(etcd, keyspace) == await names(store, keyspace)
    assert await claims(etcd, keyspace, make())


async def test_an_empty_etcd_is_not_taken_for_a_new_cluster(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, history: History, make: Make
) -> None:
    fence = await history.fenced()
    await restore(etcd, keyspace, {})
    assert not (await etcd.txn(Txn(compare=(fence,), success=(Put(keyspace.cluster(), b"x"),)))).succeeded
    for each in (history, make()):
        with pytest.raises(WentBack, match="empty or another cluster's"):
            await each.verify()
        assert each.fence is None
        assert each.stopped is not None
    assert await in_etcd(etcd, keyspace) == [], "nothing is begun in it"


async def test_an_older_state_is_refused_also_after_it_went_on(
    etcd: EtcdClient, keyspace: Keyspace, history: History, make: Make
) -> None:
    older = await saved(etcd, keyspace)
    await history.advance()
    await restore(etcd, keyspace, older)
    await etcd.put(keyspace.cluster(), b"somebody goes on")
    for each in (history, make()):
        with pytest.raises(WentBack, match="its newest is 00000000-000000000000-"):
            await each.look()


async def test_a_fence_that_was_verified_before_fails_in_an_older_state(
    etcd: EtcdClient, keyspace: Keyspace, history: History
) -> None:
    older = await saved(etcd, keyspace)
    await history.advance()
    fence = await history.fenced()
    await restore(etcd, keyspace, older)
    assert not (await etcd.txn(Txn(compare=(fence,), success=(Put(keyspace.cluster(), b"x"),)))).succeeded
    with pytest.raises(WentBack):
        await history.proven([Range(keyspace.cluster())])


async def test_another_cluster_behind_the_address_is_refused_and_the_right_one_is_good_again(
    etcd: EtcdClient, keyspace: Keyspace, history: History, store: MemoryStore
) -> None:
    right = await saved(etcd, keyspace)
    other = History(etcd, Keyspace(keyspace.namespace), MemoryStore())
    await restore(etcd, keyspace, {})
    await other.verify()
    with pytest.raises(WentBack):
        await history.look()
    await restore(etcd, keyspace, right)
    await history.look()
    assert (history.stopped, await claims(etcd, keyspace, history)) == (None, True)
    assert "stopped" not in await names(store, keyspace)


async def test_a_witness_is_made_a_minute_after_the_last_if_etcd_has_changed(
    etcd: EtcdClient, keyspace: Keyspace, history: History, clock: Clock, store: MemoryStore
) -> None:
    await etcd.put(keyspace.cluster(), b"x")
    await history.look()
    assert len(await in_etcd(etcd, keyspace)) == 1, "it is young"
    clock.now_ms += module.ADVANCE_EVERY_MS
    await history.look()
    assert len(await in_etcd(etcd, keyspace)) == 2
    clock.now_ms += module.ADVANCE_EVERY_MS
    await history.look()
    assert await in_etcd(etcd, keyspace) == await names(store, keyspace)
    assert len(await names(store, keyspace)) == 2, "nothing has changed since"


async def test_the_newest_witnesses_stay_and_a_fence_of_the_last_ones_holds(
    etcd: EtcdClient, keyspace: Keyspace, history: History, store: MemoryStore
) -> None:
    fences = [await history.fenced()]
    for _ in range(KEYS_KEPT + 2):
        await history.advance()
        fences.append(await history.fenced())
    assert len(await in_etcd(etcd, keyspace)) == KEYS_KEPT
    assert len(await names(store, keyspace)) == OBJECTS_KEPT
    holds = [(await etcd.txn(Txn(compare=(fence,)))).succeeded for fence in fences]
    assert holds == [False] * 3 + [True] * KEYS_KEPT


async def test_a_process_whose_fence_is_too_old_verifies_and_goes_on(
    etcd: EtcdClient, keyspace: Keyspace, history: History, make: Make
) -> None:
    other = make()
    for _ in range(KEYS_KEPT + 1):
        await other.advance()
    assert not await claims(etcd, keyspace, history)
    assert len(await history.proven([Range(keyspace.cluster())])) == 1
    assert await claims(etcd, keyspace, history)


async def test_a_look_takes_the_newest_witness_without_asking_the_bucket(
    history: History, make: Make, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make().advance()

    def listed(_: str) -> None:
        raise AssertionError("the bucket was listed")

    monkeypatch.setattr(store, "list", listed)
    await history.look()
    assert str(made) in str(history.fence)


async def test_a_witness_that_is_made_meanwhile_is_no_proof_against_etcd(
    history: History, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, known = make(), history._known

    async def and_then_another() -> object:
        found = await known()
        await other.advance()
        return found

    monkeypatch.setattr(history, "_known", and_then_another)
    await history.verify()


async def test_the_bucket_gets_the_witness_whose_put_failed_before_the_next_is_made(
    etcd: EtcdClient,
    keyspace: Keyspace,
    history: History,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:

        async def refused(key: str, *_: object, **__: object) -> str:
            raise StoreUnavailable(key)

        patched.setattr(store, "put", refused)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await history.advance()
        assert len(await in_etcd(etcd, keyspace)) == 2, "no third one without the second in the bucket"
    await history.verify()
    assert await in_etcd(etcd, keyspace) == await names(store, keyspace)


async def test_what_a_process_remembers_stops_all_also_later_ones_until_a_roll_forward(
    etcd: EtcdClient, keyspace: Keyspace, history: History, make: Make, store: MemoryStore
) -> None:
    other = make()
    await other.verify()
    history.suspect("the head of t/0 fell from 9 to 4")
    assert history.fence is None
    for each in (history, other, make()):
        with pytest.raises(WentBack, match="the head of t/0 fell from 9 to 4"):
            await each.verify()
    anew = make()
    await anew.begin_anew()
    assert await claims(etcd, keyspace, anew)
    assert await claims(etcd, keyspace, make())
    assert "stopped" not in await names(store, keyspace)


async def test_a_revision_that_fell_stops_the_process_at_once_and_then_all(
    history: History, make: Make
) -> None:
    assert history.fence is not None
    history._etcd._pool.revisions.note(1 << 50, 7)
    assert history.fence is None
    with pytest.raises(WentBack, match="answered with revision 7 after"):
        await history.verify()
    history._etcd.forget_revisions()
    with pytest.raises(WentBack, match="answered with revision 7 after"):
        await make().verify()


async def test_a_process_from_before_a_roll_forward_does_not_go_on_after_it(
    etcd: EtcdClient, keyspace: Keyspace, history: History, make: Make
) -> None:
    fence = await history.fenced()
    await make().begin_anew()
    assert not (await etcd.txn(Txn(compare=(fence,)))).succeeded
    history.suspect("it remembers another head")
    with pytest.raises(WentBack, match="restart it"):
        await history.verify()
    assert await make().trouble() is None, "it does not stop the others"


async def test_a_roll_forward_makes_an_older_state_good_and_may_be_repeated(
    etcd: EtcdClient, keyspace: Keyspace, history: History, make: Make
) -> None:
    await history.advance()
    await restore(etcd, keyspace, {})
    assert await make().trouble() is not None
    first, second = await make().begin_anew(), await make().begin_anew()
    assert (first.generation, second.generation) == (1, 2)
    assert await make().trouble() is None


async def test_a_look_for_trouble_changes_nothing(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, make: Make
) -> None:
    assert await make().trouble() is None
    assert (await in_etcd(etcd, keyspace), await names(store, keyspace)) == ([], [])


async def test_who_waits_goes_on_when_the_history_is_good_again(
    etcd: EtcdClient, keyspace: Keyspace, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    right = await saved(etcd, keyspace)
    await restore(etcd, keyspace, {})
    history.missed()
    running = asyncio.create_task(history.run())
    await history.judged()
    waiting = asyncio.create_task(history.until_good())
    while history.stopped is None:
        await asyncio.sleep(0)
    assert not waiting.done()
    await restore(etcd, keyspace, right)
    await asyncio.wait_for(waiting, 20)
    running.cancel()

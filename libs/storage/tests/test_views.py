"""A view equals what etcd holds, also after everything that a watch can miss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import (
    EtcdClient,
    KeyValue,
    Put,
    Txn,
)
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import CorruptValue
from kafscale.storage.views import PrefixView
from kafscale.testkit.proxy import FaultProxy


def text(kv: KeyValue) -> str | None:
    return None if kv.value == b"skip" else kv.value.decode()


@asynccontextmanager
async def running(view: PrefixView[str]) -> AsyncIterator[PrefixView[str]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.run())
        await view.ready()
        yield view
        task.cancel()


async def settle(view: PrefixView[str], check: Callable[[], bool]) -> None:
    """Waits for a change of the view after which `check` holds."""
    changed = asyncio.Event()
    unsubscribe = view.subscribe(lambda key, value: changed.set())
    async with asyncio.timeout(20):
        while not check():
            changed.clear()
            await changed.wait()
    unsubscribe()


async def test_a_view_holds_what_was_there_and_follows_what_comes(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    a, b = keyspace.topic("a"), keyspace.topic("b")
    await etcd.put(a, b"1")
    await etcd.put(keyspace.cluster(), b"outside the prefix")
    seen: list[tuple[bytes, str | None]] = []
    view = PrefixView(etcd, keyspace.topics_prefix(), text)
    view.subscribe(lambda key, value: seen.append((key, value)))
    async with running(view):
        assert dict(view.items) == {a: "1"}
        await etcd.put(b, b"2")
        await etcd.put(b, b"skip")
        gone = await etcd.delete(a)
        assert await view.wait_revision(gone.revision, 5)
        assert dict(view.items) == {}
        last = await etcd.put(b, b"3")
        assert await view.wait_revision(last.revision, 5)
        assert view.revision == last.revision
    assert seen == [(a, "1"), (b, "2"), (b, None), (a, None), (b, "3")]


async def test_waiting_for_a_revision_that_does_not_come_says_so(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(PrefixView(etcd, keyspace.topics_prefix(), text)) as view:
        assert not await view.wait_revision(view.revision + 10_000_000, 0.05)


async def test_a_refresh_holds_everything_committed_before_it(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """The watch is cut off for good; only the refresh can know."""
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy:
        cut_off = EtcdClient.connect([proxy.address])
        view = PrefixView(etcd, keyspace.topics_prefix(), text)
        view._etcd = cut_off
        async with running(view):
            proxy.silence()
            view._etcd = etcd
            await etcd.put(keyspace.topic("a"), b"1")
            await etcd.put(keyspace.topic("b"), b"1")
            await view.refresh()
            assert dict(view.items) == {keyspace.topic("a"): "1", keyspace.topic("b"): "1"}
            await etcd.delete(keyspace.topic("a"))
            await etcd.put(keyspace.topic("b"), b"2")
            await view.refresh_keys([keyspace.topic("a")])
            assert dict(view.items) == {keyspace.topic("b"): "1"}, "the keys asked for, no others"
        await cut_off.close()


async def test_a_view_comes_right_after_history_was_compacted_under_it(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    kept, gone, new = (keyspace.topic(name) for name in ("kept", "gone", "new"))
    await etcd.put(gone, b"1")
    await etcd.put(kept, b"1")
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy:
        client = EtcdClient.connect([proxy.address])
        async with running(PrefixView(client, keyspace.topics_prefix(), text)) as view:
            await etcd.put(kept, b"2")
            await settle(view, lambda: view.items.get(kept) == "2")
            proxy.refuse()
            proxy.reset_all()
            await etcd.delete(gone)
            await etcd.put(new, b"1")
            last = await etcd.put(kept, b"3")
            await etcd.compact(last.revision)
            proxy.heal()
            await settle(view, lambda: view.items.get(kept) == "3" and gone not in view.items)
            assert dict(view.items) == {kept: "3", new: "1"}
            assert view.resyncs == 1
        await client.close()


async def test_a_view_finds_by_itself_what_the_watch_never_told(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """etcd has lost watch events before; the periodic range repairs that."""
    a, b = keyspace.topic("a"), keyspace.topic("b")
    await etcd.put(a, b"1")
    view = PrefixView(etcd, keyspace.topics_prefix(), text, reconcile_s=0.2)
    view._apply = lambda batch: None  # type: ignore[method-assign]
    async with running(view):
        await etcd.delete(a)
        await etcd.put(b, b"1")
        await settle(view, lambda: dict(view.items) == {b: "1"})


def readable(kv: KeyValue) -> str:
    if kv.value.startswith(b"?"):
        raise CorruptValue("text", kv.value.decode())
    return kv.value.decode()


async def test_a_watch_that_is_ending_may_be_ended_again(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """As after a pause of the machine: the watch's time is over, and a timer ends the watch in the same turn."""
    key = keyspace.topic("a")
    view = PrefixView(etcd, keyspace.topics_prefix(), text)
    async with running(view):
        while view._following is None:
            await asyncio.sleep(0)
        view._end_watch()
        while not view._following.expired():
            await asyncio.sleep(0)
        view._end_watch()
        await etcd.put(key, b"1")
        await settle(view, lambda: key in view.items)


async def test_a_value_that_cannot_be_read_harms_its_key_alone(
    etcd: EtcdClient, keyspace: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, c = (keyspace.topic(name) for name in "abc")
    await etcd.put(a, b"?1")
    await etcd.put(b, b"2")
    await etcd.put(c, b"3")
    seen: list[tuple[bytes, str | None]] = []
    async with running(PrefixView(etcd, keyspace.topics_prefix(), readable)) as view:
        view.subscribe(lambda key, value: seen.append((key, value)))
        assert dict(view.items) == {b: "2", c: "3"}
        assert list(view.unreadable) == [a]
        await etcd.put(b, b"?4")
        after = await etcd.put(c, b"5")
        assert await view.wait_revision(after.revision, 5)
        assert (dict(view.items), list(view.unreadable)) == ({c: "5"}, [a, b])
        await view.refresh()
        await view.refresh()
        assert list(view.unreadable) == [a, b], "read again, and still damaged"
        await etcd.put(a, b"6")
        gone = await etcd.delete(b)
        assert await view.wait_revision(gone.revision, 5)
        assert (dict(view.items), list(view.unreadable)) == ({a: "6", c: "5"}, [])
    assert seen == [(b, None), (c, "5"), (a, "6")]
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "unreadable:" in text] == [
        f"stored value unreadable: {a!r}: not a text: ?1",
        f"stored value unreadable: {b!r}: not a text: ?4",
    ], "once for each"


async def test_what_is_our_bug_in_reading_a_value_ends_the_view(etcd: EtcdClient, keyspace: Keyspace) -> None:
    def broken(kv: KeyValue) -> str:
        raise ZeroDivisionError

    await etcd.put(keyspace.topic("a"), b"")
    with pytest.raises(ZeroDivisionError):
        await PrefixView(etcd, keyspace.topics_prefix(), broken).run()


async def test_the_first_range_is_awaited_through_an_outage(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await etcd.put(keyspace.topic("a"), b"1")
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy, asyncio.TaskGroup() as group:
        proxy.refuse()
        client = EtcdClient.connect([proxy.address])
        view = PrefixView(client, keyspace.topics_prefix(), text)
        task = group.create_task(view.run())
        await proxy.until(lambda p: p.accepted >= 2)
        assert not view.is_ready
        proxy.heal()
        await view.ready()
        assert dict(view.items) == {keyspace.topic("a"): "1"}
        task.cancel()
        await asyncio.wait([task])
        await client.close()


async def test_many_changes_end_in_exactly_what_etcd_holds(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(PrefixView(etcd, keyspace.topics_prefix(), text, reconcile_s=0.05)) as view:
        last = 0
        for number in range(60):
            puts = tuple(Put(keyspace.topic(f"{n}"), b"%d" % number) for n in range(number % 7, 20, 3))
            last = (await etcd.txn(Txn(success=puts))).revision
            if number % 4 == 0:
                last = (await etcd.delete(keyspace.topic(f"{number % 20}"))).revision or last
            if number % 9 == 0:
                await view.refresh()
        await view.refresh()
        truth = await etcd.prefix(keyspace.topics_prefix())
        assert dict(view.items) == {kv.key: kv.value.decode() for kv in truth.kvs}
        assert view.revision >= last

"""A watch gives every event once, in order, whatever happens to the connection under it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import (
    EtcdClient,
    EtcdUnknown,
    EventKind,
    Put,
    Txn,
    Watch,
    WatchCompacted,
    WatchEvent,
)
from kafscale.storage.etcd.pool import Pool
from kafscale.storage.etcd.transport import Access
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.testkit.etcd import start_etcd, start_etcd_cluster
from kafscale.testkit.proxy import FaultProxy

MIB = 1 << 20


def watch_all(client: EtcdClient, keyspace: Keyspace, after: int) -> Watch:
    root = keyspace.root()
    return client.watch(root, range_end=prefix_end(root), start_revision=after + 1)


async def take(watch: Watch, count: int) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    async with asyncio.timeout(20):
        while len(events) < count:
            batch = await anext(watch)
            assert batch.revision == batch.events[-1].kv.mod_revision
            events.extend(batch.events)
    assert len(events) == count
    return events


async def put_surely(client: EtcdClient, key: bytes, value: bytes) -> int:
    async with asyncio.timeout(20):
        while True:
            try:
                return (await client.put(key, value, timeout_s=1)).revision
            except EtcdUnknown:
                kv = await client.get(key, timeout_s=5)
                if kv is not None and kv.value == value:
                    return kv.mod_revision


async def test_events_come_in_order_with_revisions_and_kinds(etcd: EtcdClient, keyspace: Keyspace) -> None:
    before = await etcd.put(keyspace.topic("old"), b"0")
    key = keyspace.topic("a")
    async with watch_all(etcd, keyspace, before.revision) as watch:
        put = await etcd.put(key, b"1")
        txn = await etcd.txn(Txn(success=(Put(key, b"2"), Put(keyspace.topic("b"), b"3"))))
        gone = await etcd.delete(key)
        events = await take(watch, 4)
    assert [(e.kind, e.kv.key, e.kv.value, e.kv.mod_revision) for e in events] == [
        (EventKind.PUT, key, b"1", put.revision),
        (EventKind.PUT, key, b"2", txn.revision),
        (EventKind.PUT, keyspace.topic("b"), b"3", txn.revision),
        (EventKind.DELETE, key, b"", gone.revision),
    ]


async def test_a_watch_resumes_after_etcd_is_killed_and_started_again(tmp_path: Path) -> None:
    keys = Keyspace()
    with start_etcd(tmp_path) as server:
        client = EtcdClient.connect([server.endpoint])
        start = (await client.put(keys.topic("start"), b"")).revision
        async with watch_all(client, keys, start) as watch:
            await client.put(keys.topic("a"), b"0")
            assert [e.kv.value for e in await take(watch, 1)] == [b"0"]
            waiting = asyncio.create_task(take(watch, 3))
            server.kill()
            await server.start()
            for number in (1, 2, 3):
                await put_surely(client, keys.topic("a"), b"%d" % number)
            assert [e.kv.value for e in await waiting] == [b"1", b"2", b"3"]
            assert watch.resumes > 0
        await client.close()


async def test_events_missed_while_cut_off_are_given_once(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    start = (await etcd.put(keyspace.topic("a"), b"start")).revision
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy:
        client = EtcdClient.connect([proxy.address])
        async with watch_all(client, keyspace, start) as watch:
            await etcd.put(keyspace.topic("a"), b"0")
            await take(watch, 1)
            waiting = asyncio.create_task(take(watch, 20))
            for number in range(20):
                if number % 5 == 0:
                    proxy.reset_all()
                await etcd.put(keyspace.topic("a"), b"%d" % number)
            assert [e.kv.value for e in await waiting] == [b"%d" % n for n in range(20)]
        await client.close()


async def test_history_that_was_compacted_away_is_reported(etcd: EtcdClient, keyspace: Keyspace) -> None:
    first = (await etcd.put(keyspace.topic("a"), b"1")).revision
    await etcd.put(keyspace.topic("a"), b"2")
    last = (await etcd.put(keyspace.topic("a"), b"3")).revision
    await etcd.compact(last)
    async with watch_all(etcd, keyspace, first) as watch:
        with pytest.raises(WatchCompacted) as compacted:
            await anext(watch)
    assert compacted.value.compact_revision == last


async def test_a_watch_cut_off_over_a_compaction_reports_it_instead_of_skipping(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    start = (await etcd.put(keyspace.topic("a"), b"start")).revision
    async with FaultProxy("127.0.0.1", etcd_server.client_port) as proxy:
        client = EtcdClient.connect([proxy.address])
        async with watch_all(client, keyspace, start) as watch:
            await etcd.put(keyspace.topic("a"), b"0")
            await take(watch, 1)
            proxy.refuse()
            proxy.reset_all()
            await etcd.put(keyspace.topic("a"), b"missed")
            last = await etcd.put(keyspace.topic("a"), b"kept")
            await etcd.compact(last.revision)
            proxy.heal()
            with pytest.raises(WatchCompacted):
                await take(watch, 1)
        await client.close()


async def test_a_cancelled_wait_loses_no_event(etcd: EtcdClient, keyspace: Keyspace) -> None:
    start = (await etcd.put(keyspace.topic("a"), b"start")).revision
    async with watch_all(etcd, keyspace, start) as watch:
        await etcd.put(keyspace.topic("a"), b"0")
        await take(watch, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(watch)
        for number in range(3):
            await etcd.put(keyspace.topic("a"), b"%d" % number)
        assert [e.kv.value for e in await take(watch, 3)] == [b"0", b"1", b"2"]


async def test_a_slow_consumer_gets_everything(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """More than one gRPC message and one etcd catch-up batch hold, all waiting in etcd."""
    start = (await etcd.put(keyspace.topic("start"), b"")).revision
    for number in range(12):
        puts = tuple(Put(keyspace.topic(f"{number}-{n}"), bytes(8_000)) for n in range(100))
        await etcd.txn(Txn(success=puts))
    async with watch_all(etcd, keyspace, start) as watch:
        events = await take(watch, 1200)
    expected = [keyspace.topic(f"{number}-{n}") for number in range(12) for n in range(100)]
    assert sorted(e.kv.key for e in events) == sorted(expected)
    assert [e.kv.mod_revision for e in events] == sorted(e.kv.mod_revision for e in events)


async def test_a_watch_moves_to_another_member_when_its_own_dies(tmp_path: Path) -> None:
    keys = Keyspace()
    with start_etcd_cluster(tmp_path) as cluster:
        client = EtcdClient.connect(cluster.endpoints)
        start = (await client.put(keys.topic("start"), b"")).revision
        async with watch_all(client, keys, start) as watch:
            await client.put(keys.topic("a"), b"0")
            await take(watch, 1)
            waiting = asyncio.create_task(take(watch, 2))
            cluster.members[0].kill()
            await put_surely(client, keys.topic("a"), b"1")
            await put_surely(client, keys.topic("a"), b"2")
            assert [e.kv.value for e in await waiting] == [b"1", b"2"]
        await client.close()


class _Answers(Watch):
    """A watch whose answers come from the test."""

    def __init__(self, *answers: pb.WatchResponse) -> None:
        pool = Pool(Access.parse(["127.0.0.1:1"]))
        super().__init__(pool, key=b"k", range_end=None, start_revision=10)
        self.answers = list(answers)

    async def _read(self) -> pb.WatchResponse:
        return self.answers.pop(0)


def answer(*revisions: int, fragment: bool) -> pb.WatchResponse:
    events = [pb.Event(kv=pb.KeyValue(key=b"k%d" % n, mod_revision=r)) for n, r in enumerate(revisions)]
    return pb.WatchResponse(fragment=fragment, events=events)


async def test_a_revision_is_given_out_only_when_its_last_fragment_has_come() -> None:
    watch = _Answers(answer(10, 11, fragment=True), answer(11, fragment=True), answer(11, 12, fragment=False))
    first = await anext(watch)
    assert (first.revision, [e.kv.mod_revision for e in first.events]) == (10, [10])
    second = await anext(watch)
    assert (second.revision, [e.kv.mod_revision for e in second.events]) == (12, [11, 11, 11, 12])


async def test_fragments_of_a_broken_stream_are_forgotten_and_asked_for_again() -> None:
    watch = _Answers(answer(10, 11, fragment=True), answer(11, 12, fragment=False))
    await anext(watch)
    watch._drop()
    assert watch._next == 11
    again = await anext(watch)
    assert [e.kv.mod_revision for e in again.events] == [11, 12]

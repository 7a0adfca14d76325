"""A client of etcd as it is, against the model: leases, leaders that change, networks that are cut, and restores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind, Watch, WatchCompacted
from kafscale.testkit.clock import run_in_virtual_time
from kafscale.testkit.etcd_model.server import NODE, EtcdServer
from kafscale.testkit.memory_grpc.network import Network

Story = Callable[[Network, EtcdServer, EtcdClient], Coroutine[Any, Any, None]]


def told(story: Story) -> None:
    """In virtual time, with a millisecond between nodes."""

    async def tell() -> None:
        network = Network(lambda *_: 0.001)
        server = EtcdServer(network)
        await server.start()
        client = server.client("client")
        await story(network, server, client)
        await client.close()
        await server.stop()

    run_in_virtual_time(tell())


async def values(watch: Watch, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [event.kv.value for event in (await anext(watch)).events]
    return found


def test_a_lease_expires_by_itself_and_its_watchers_hear_it() -> None:
    async def story(_network: Network, _server: EtcdServer, etcd: EtcdClient) -> None:
        lease = await etcd.lease_grant(8)
        put = await etcd.put(b"live", b"1", lease=lease)
        loop = asyncio.get_running_loop()
        granted_s = loop.time()
        async with etcd.watch(b"live", start_revision=put.revision + 1) as watch:
            [gone] = (await anext(watch)).events
        assert gone.kv.value == b""
        assert loop.time() - granted_s == pytest.approx(8, abs=0.1)
        assert await etcd.lease_remaining_s(lease) == -1

    told(story)


def test_a_watch_that_is_cut_off_misses_nothing_and_repeats_nothing() -> None:
    async def story(network: Network, server: EtcdServer, etcd: EtcdClient) -> None:
        other = server.client("other")
        put = await etcd.put(b"k", b"0")
        async with etcd.watch(b"k", start_revision=put.revision) as watch:
            assert await values(watch, 1) == [b"0"]
            network.cut("client", NODE)
            for number in range(1, 4):
                await other.put(b"k", b"%d" % number)
                await asyncio.sleep(6)
            network.heal("client", NODE)
            assert await values(watch, 3) == [b"1", b"2", b"3"]
            assert watch.resumes > 0
        await other.close()

    told(story)


def test_a_watch_that_comes_back_after_a_compaction_says_so() -> None:
    async def story(network: Network, server: EtcdServer, etcd: EtcdClient) -> None:
        other = server.client("other")
        put = await etcd.put(b"k", b"0")
        async with etcd.watch(b"k", start_revision=put.revision) as watch:
            await values(watch, 1)
            network.cut("client", NODE)
            for _ in range(3):
                newest = await other.put(b"k", b"")
            await other.compact(newest.revision)
            network.drop_connections("client", "cut for too long")
            network.heal("client", NODE)
            with pytest.raises(WatchCompacted):
                await values(watch, 1)
        await other.close()

    told(story)


def test_an_etcd_without_a_leader_refuses_and_its_leases_begin_anew_with_the_next_one() -> None:
    async def story(_network: Network, server: EtcdServer, etcd: EtcdClient) -> None:
        lease = await etcd.lease_grant(8)
        put = await etcd.put(b"live", b"1", lease=lease)
        async with etcd.watch(b"live", start_revision=put.revision) as watch:
            await values(watch, 1)
            server.go_away()
            with pytest.raises(EtcdUnknown) as raised:
                await etcd.put(b"k", b"")
            assert raised.value.kind is UnknownKind.LEADER
            await asyncio.sleep(20)
            server.come_back()
            assert await etcd.lease_remaining_s(lease) >= 7
            assert (await etcd.get(b"live")) is not None
            await etcd.put(b"live", b"2", lease=lease)
            assert await values(watch, 1) == [b"2"]
        assert etcd.fell is None

    told(story)


def test_a_client_sees_that_etcd_went_back() -> None:
    async def story(_network: Network, server: EtcdServer, etcd: EtcdClient) -> None:
        older = server.model.snapshot()
        first = (await etcd.put(b"k", b"1")).revision
        server.restore(older)
        assert await etcd.get(b"k") is None
        assert etcd.fell == (first, first - 1)

    told(story)


def test_the_answer_to_a_write_may_be_lost_although_it_is_applied() -> None:
    async def story(network: Network, server: EtcdServer, etcd: EtcdClient) -> None:
        await etcd.get(b"k")
        put = asyncio.ensure_future(etcd.put(b"k", b"1"))
        while server.model.get(b"k") is None:
            await asyncio.sleep(0.0001)
        network.cut("client", NODE)
        with pytest.raises(EtcdUnknown) as raised:
            await put
        assert raised.value.kind is UnknownKind.TIMEOUT

    told(story)

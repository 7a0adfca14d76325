"""What the client says when the way to etcd, or etcd itself, fails: unknown stays unknown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.client import (
    Compare,
    EtcdClient,
    EtcdRejected,
    EtcdUnknown,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    UnknownKind,
)
from kafscale.storage.keys import Keyspace
from kafscale.testkit.etcd import start_etcd, start_etcd_cluster
from kafscale.testkit.proxy import FaultProxy, Way

MIB = 1 << 20


@asynccontextmanager
async def client_of(*endpoints: str) -> AsyncIterator[EtcdClient]:
    client = EtcdClient.connect(endpoints)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def behind_proxy(server: EtcdProcess) -> AsyncIterator[tuple[FaultProxy, EtcdClient]]:
    async with FaultProxy("127.0.0.1", server.client_port) as proxy, client_of(proxy.address) as client:
        yield proxy, client


def increment(key: bytes, revision: int, value: bytes) -> Txn:
    return Txn((Compare(key, "mod", "=", revision),), (Put(key, value),), (Range(key),))


async def test_a_lost_answer_is_unknown_and_the_identical_request_resolves_it(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    key = keyspace.topic("a")
    first = await etcd.put(key, b"0")
    request = Txn(success=(increment(key, first.revision, b"1"),))
    async with behind_proxy(etcd_server) as (proxy, client):
        await client.get(key)
        proxy.lose_answers()
        with pytest.raises(EtcdUnknown) as unknown:
            await client.txn(request, timeout_s=0.5)
        assert unknown.value.kind is UnknownKind.TIMEOUT
        proxy.heal()
        again = await resolve(client, request)
    nested = again.responses[0]
    assert isinstance(nested, TxnResult)
    assert not nested.succeeded, "the first try was applied, so its compare fails now"
    read = nested.responses[0]
    assert isinstance(read, RangeResult)
    assert (read.kvs[0].value, read.kvs[0].version) == (b"1", 2), "applied exactly once"


async def resolve(client: EtcdClient, request: Txn) -> TxnResult:
    """What a caller does with an unknown outcome."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await client.txn(request, timeout_s=1)
            except EtcdUnknown:
                await asyncio.sleep(0.02)


async def test_a_connection_reset_with_a_request_on_its_way_is_unknown(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with behind_proxy(etcd_server) as (proxy, client):
        await client.get(keyspace.topic("a"))
        proxy.silence(Way.UP)
        sent = proxy.up.passed_bytes
        writing = asyncio.create_task(client.put(keyspace.topic("a"), b"x" * 1000))
        reading = asyncio.create_task(client.get(keyspace.topic("b")))
        await asyncio.sleep(0)  # both are started
        proxy.reset_all()
        with pytest.raises(EtcdUnknown):
            await writing
        assert proxy.up.passed_bytes == sent
        proxy.heal()
        assert await reading is None, "a read is tried again until its deadline"


async def test_a_write_is_sent_once_however_long_it_may_take(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """Every put would raise the key's version; lost answers tempt a client to send again."""
    key = keyspace.topic("a")
    async with behind_proxy(etcd_server) as (proxy, client):
        await client.get(key)
        proxy.lose_answers()
        for _ in range(3):
            with pytest.raises(EtcdUnknown):
                await client.put(key, b"v", timeout_s=0.2)
        kv = await etcd.get(key)
    assert kv is not None
    assert kv.version == 3


async def test_etcd_that_is_down_is_unknown_at_the_deadline(keyspace: Keyspace) -> None:
    async with client_of(f"127.0.0.1:{free_port()}") as client:
        for call in (client.get(b"a", timeout_s=0.3), client.put(b"a", b"", timeout_s=0.3)):
            started_s = time.monotonic()
            with pytest.raises(EtcdUnknown):
                await call
            assert time.monotonic() - started_s < 2


async def test_calls_wait_for_the_only_etcd_to_come_back(tmp_path: Path) -> None:
    with start_etcd(tmp_path) as server:
        async with client_of(server.endpoint) as client:
            await client.put(b"a", b"1")
            server.kill()
            reading = asyncio.create_task(client.get(b"a", timeout_s=10))
            await server.start()
            kv = await reading
            assert kv is not None
            assert kv.value == b"1"
            await client.put(b"a", b"2", timeout_s=10)


async def test_a_full_database_is_unknown_because_etcd_may_have_applied_it(tmp_path: Path) -> None:
    with start_etcd(tmp_path, quota_bytes=16 * 16_384) as server:
        async with client_of(server.endpoint) as client:
            failure = await fill(client)
            assert isinstance(failure, EtcdUnknown)
            assert failure.kind is UnknownKind.NOSPACE
            assert await client.get(b"fill0") is not None, "reads go on"
            revision = (await client.delete(b"fill0", range_end=b"fill:")).revision
            await client.compact(revision)
            await client.defragment()
            assert await client.disarm_alarms() == 1
            await client.put(b"a", b"room again")


async def fill(client: EtcdClient) -> EtcdUnknown | EtcdRejected | None:
    for n in range(1000):
        try:
            await client.put(b"fill%d" % (n % 10), b"x" * 20_000)
        except (EtcdUnknown, EtcdRejected) as failure:
            return failure
    return None


async def test_restarting_with_an_alarm_says_so_instead_of_waiting(tmp_path: Path) -> None:
    with start_etcd(tmp_path, quota_bytes=16 * 16_384) as server:
        async with client_of(server.endpoint) as client:
            await fill(client)
        await server.stop()
        assert await server.start() == ("NOSPACE",)


async def test_a_silent_endpoint_is_left_for_the_next_one(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with (
        FaultProxy("127.0.0.1", etcd_server.client_port) as proxy,
        client_of(proxy.address, etcd_server.endpoint) as client,
    ):
        await client.put(keyspace.topic("a"), b"1")
        proxy.silence()
        kv = await client.get(keyspace.topic("a"), timeout_s=2)
        assert kv is not None, "a read moves on within its deadline"
        await client.put(keyspace.topic("a"), b"2", timeout_s=0.5)


async def test_a_killed_leader_costs_unknown_outcomes_but_no_write(tmp_path: Path) -> None:
    with start_etcd_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        first = cluster.members.index(leader)
        endpoints = cluster.endpoints[first:] + cluster.endpoints[:first]
        async with client_of(*endpoints) as client:
            revision = (await client.put(b"n", b"0")).revision
            for number in range(1, 40):
                if number == 10:
                    leader.kill()
                request = increment(b"n", revision, b"%d" % number)
                result = await resolve(client, request)
                if result.succeeded:
                    revision = result.revision
                    continue
                read = result.responses[0]
                assert isinstance(read, RangeResult)
                assert read.kvs[0].value == b"%d" % number, "the earlier try was applied"
                revision = read.kvs[0].mod_revision
            kv = await client.get(b"n")
            assert kv is not None
            assert (kv.value, kv.version) == (b"39", 40), "each number was written exactly once"


async def test_without_a_quorum_writes_are_unknown_and_reads_do_not_lie(tmp_path: Path) -> None:
    with start_etcd_cluster(tmp_path) as cluster:
        async with client_of(*cluster.endpoints) as client:
            await client.put(b"a", b"1")
            for member in cluster.members[1:]:
                member.kill()
            with pytest.raises(EtcdUnknown):
                await client.put(b"a", b"2", timeout_s=1)
            with pytest.raises(EtcdUnknown):
                await client.get(b"a", timeout_s=1)

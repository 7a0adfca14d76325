"""What an instance does when etcd refuses its registration, is full, or has tied it to another lease."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdRejected, EtcdUnknown, UnknownKind
from kafscale.storage.etcd.pool import LEASE_KEEPALIVE
from kafscale.storage.etcd.transport import Access
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.keepalive import WAIT, KeepaliveThread
from kafscale.storage.membership.members import Pace, Registration, RegistrationRefused
from kafscale.testkit.etcd import start_etcd

ROLE = "produce"
AGAIN_S = 60.0
QUICK = Pace(ttl_s=2, interval_s=0.1, silence_max_s=4)
FOREVER = Pace(ttl_s=600, interval_s=0.1, silence_max_s=4)


class Refusing(grpc.GenericRpcHandler):
    """An etcd that renews no lease and says why; `asked` counts the keepalives that it was sent."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code = code
        self.asked = 0

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != LEASE_KEEPALIVE.path:
            return None
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    def _refuse(self, _requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self.asked += 1
        context.abort(self.code, "etcdserver: permission denied")
        yield b""


def refusing(code: grpc.StatusCode) -> tuple[grpc.Server, Refusing, Access]:
    handler = Refusing(code)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, handler, Access.parse([f"127.0.0.1:{port}"])


async def registered(
    etcd: EtcdClient, keyspace: Keyspace, pace: Pace, met: list[EtcdError] | None = None
) -> Registration:
    return await Registration.join(
        etcd,
        keyspace,
        role=ROLE,
        address="",
        node_id=4,
        pace=pace,
        trouble=None if met is None else met.append,
    )


async def lease_of(etcd: EtcdClient, registration: Registration) -> int:
    kv = await etcd.get(registration._live_key())
    return 0 if kv is None else kv.lease


async def test_an_instance_whose_keepalives_etcd_refuses_registers_again_after_its_time_to_live(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    server, handler, refused = refusing(grpc.StatusCode.PERMISSION_DENIED)
    true_access, etcd.access = etcd.access, refused
    registration = await registered(etcd, keyspace, QUICK)
    first = registration.lease_id
    etcd.access = true_access
    running = asyncio.create_task(registration.run())
    async with asyncio.timeout(20):
        while await lease_of(etcd, registration) in (0, first):
            assert not running.done(), "it neither ends nor ages for ever"
    assert handler.asked > 1, "one refusal is not enough: the token may only be stale"
    async with asyncio.timeout(20):
        while registration.renewed_at_s <= asyncio.get_running_loop().time() - QUICK.interval_s * 5:
            await etcd.lease_remaining_s(registration.lease_id)
    await registration.leave()
    await running
    server.stop(None)


async def test_a_keepalive_that_is_refused_for_a_whole_time_to_live_gives_the_lease_up(
    etcd: EtcdClient,
) -> None:
    """Although the lease itself still lives in etcd, which would end nothing."""
    server, handler, refused = refusing(grpc.StatusCode.UNAUTHENTICATED)
    lease, lost = await etcd.lease_grant(600), asyncio.Event()
    loop = asyncio.get_running_loop()

    def said(_lease: int) -> None:
        loop.call_soon_threadsafe(lost.set)

    pace = Pace(ttl_s=1, interval_s=0.05, silence_max_s=60)
    keepalive = KeepaliveThread(refused, lease, said, pace)
    keepalive.start()
    async with asyncio.timeout(20):
        await lost.wait()
    assert handler.asked > 1
    server.stop(None)
    await etcd.lease_revoke(lease)


async def test_a_keepalive_that_nobody_answers_waits(etcd: EtcdClient) -> None:
    lost: list[int] = []
    away = Access.parse([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])
    keepalive = KeepaliveThread(away, 1, lost.append, Pace(ttl_s=0, interval_s=0.05, silence_max_s=60))
    steps = keepalive.steps()
    assert next(steps) is WAIT
    assert steps.send(None) == 0
    assert steps.send(keepalive._ask()) == 1
    assert steps.send(keepalive._ask()) is WAIT, "it may be the network, and etcd may still hold the lease"
    assert lost == []


async def test_an_instance_that_etcd_refuses_to_register_again_ends_with_a_sentence(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[EtcdError] = []
    registration = await registered(etcd, keyspace, QUICK, met)
    denied = EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")

    async def refuse(*_: object, **__: object) -> int:
        raise denied

    monkeypatch.setattr(etcd, "lease_grant", refuse)
    await etcd.lease_revoke(registration.lease_id)
    with pytest.raises(RegistrationRefused, match="refuses to register produce 4 again .*KAFSCALE_ETCD_USER"):
        async with asyncio.timeout(20):
            await registration.run()
    assert met == [denied], "and it said so once while it tried"


async def test_keys_that_a_late_copy_tied_to_another_lease_are_registered_again(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    registration = await registered(etcd, keyspace, QUICK)
    first, older = registration.lease_id, await etcd.lease_grant(600)
    kv = await etcd.get(registration._live_key())
    assert kv is not None
    running = asyncio.create_task(registration.run())
    await etcd.put(kv.key, kv.value, lease=older)
    async with asyncio.timeout(20):
        while await lease_of(etcd, registration) != registration.lease_id:
            assert not running.done()
    assert registration.lease_id not in (first, older)
    await registration.leave()
    await running
    await etcd.lease_revoke(older)


async def test_a_registration_that_is_looked_at_and_found_right_is_left_alone(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    registration = await registered(etcd, keyspace, QUICK)
    assert await registration._holds_our_keys()
    other = await etcd.lease_grant(600)
    node_key = keyspace.node(ROLE, 4)
    node = await etcd.get(node_key)
    assert node is not None
    await etcd.put(node_key, node.value, lease=other)
    assert not await registration._holds_our_keys(), "the node's key counts as well"
    await etcd.delete(node_key)
    assert not await registration._holds_our_keys()
    await registration.leave()
    await etcd.lease_revoke(other)


async def fill(etcd: EtcdClient) -> EtcdUnknown:
    """Writes until etcd is full. On a busy machine a request may take longer than its deadline before that."""
    async with asyncio.timeout(AGAIN_S):
        while True:
            try:
                await etcd.put(b"fill/%s" % uuid.uuid4().bytes, bytes(256 << 10))
            except EtcdUnknown as unknown:
                if unknown.kind is UnknownKind.NOSPACE:
                    return unknown


async def refused_join(etcd: EtcdClient) -> EtcdUnknown:
    async with asyncio.timeout(AGAIN_S):
        while True:
            try:
                await Registration.join(etcd, Keyspace(), role="fetch", address="", node_id=None, pace=QUICK)
            except EtcdUnknown as unknown:
                if unknown.kind is not UnknownKind.TIMEOUT:
                    return unknown
            else:
                raise AssertionError("a full etcd has no place for it")


async def make_room(etcd: EtcdClient) -> None:
    deleted = await etcd.delete(b"fill/", range_end=b"fill0", timeout_s=AGAIN_S)
    await etcd.compact(deleted.revision, timeout_s=AGAIN_S)
    await etcd.defragment(timeout_s=AGAIN_S)
    await etcd.disarm_alarms(timeout_s=AGAIN_S)


async def test_a_full_etcd_is_said_at_once_when_joining_and_waited_out_when_joined(tmp_path: Path) -> None:
    with start_etcd(tmp_path, quota_bytes=4 << 20) as server:
        etcd = EtcdClient.connect([server.endpoint])
        met: list[EtcdError] = []
        registration = await registered(etcd, Keyspace(), FOREVER, met)
        assert "space exceeded" in str(await fill(etcd))
        assert re.search("nospace.*kafscale etcd-repair", str(await refused_join(etcd)))
        await etcd.lease_revoke(registration.lease_id, timeout_s=AGAIN_S)
        running = asyncio.create_task(registration.run())
        async with asyncio.timeout(AGAIN_S):
            while not any(isinstance(one, EtcdUnknown) and one.kind is UnknownKind.NOSPACE for one in met):
                assert not running.done()
                await etcd.status(timeout_s=AGAIN_S)
        await make_room(etcd)
        async with asyncio.timeout(AGAIN_S):
            while await lease_of(etcd, registration) == 0:
                assert not running.done()
        await registration.leave()
        await running
        await etcd.close()

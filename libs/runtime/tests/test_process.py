"""run_service as real processes against a real etcd."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.grpc_identity import GrpcIdentity, plain
from kafscale.runtime.grpc_server import advertised_http
from kafscale.runtime.loop_watchdog import STUCK_EXIT_CODE
from kafscale.runtime.stream.client import ClientLimits, StreamClient
from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.stream.options import Stream
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Instance, InstanceState, LiveView
from kafscale.testkit.authority import Authority
from kafscale.testkit.etcd import etcd_program
from running_service import WAIT_S, service, settings_for

ECHO, HELD, SPIN = 0, 1, 2


@pytest.fixture(autouse=True)
def stores_are_pytests_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is killed leaves its passing store behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@asynccontextmanager
async def live_view(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[LiveView]:
    view = LiveView(etcd, keyspace, "produce")
    running = asyncio.get_running_loop().create_task(view.run())
    await view.loaded()
    try:
        yield view
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def until_instances(view: LiveView, *states: InstanceState) -> tuple[Instance, ...]:
    """Returns when exactly these states are registered."""
    async with asyncio.timeout(WAIT_S):
        changed = asyncio.Event()
        unsubscribe = view.subscribe(changed.set)
        try:
            while tuple(sorted(x.state.value for x in view.instances())) != tuple(
                sorted(s.value for s in states)
            ):
                changed.clear()
                await changed.wait()
        finally:
            unsubscribe()
    return view.instances()


def echo_meta(api_key: int = ECHO) -> RequestMeta:
    return RequestMeta(connection_id=1, api_key=api_key, api_version=1)


async def test_a_service_registers_serves_and_tells_its_health(
    etcd: EtcdClient, etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with (
        live_view(etcd, keyspace) as view,
        service(settings_for(etcd_server.endpoint, keyspace, RACK="zone-a"), "--node-id", "7") as running,
    ):
        ready = await running.logged("ready")
        (instance,) = await until_instances(view, InstanceState.READY)
        assert (instance.node_id, instance.rack, instance.address) == (7, "zone-a", ready["grpc"])
        assert ready["instance"] == instance.id
        assert await running.http("/readyz") == (200, "ready\n")
        assert await running.http("/livez") == (200, "ok\n")
        client = StreamClient(instance.address, kind=Stream.BULK)
        assert bytes((await client.send(echo_meta(), (b"hi",)).future).body) == b"echo:hi"
        _, metrics = await running.http("/metrics")
        assert 'kafscale_produce_stream_requests_total{kind="bulk"} 1.0' in metrics
        assert "kafscale_produce_loop_lag_seconds" in metrics
        async with grpc.aio.insecure_channel(instance.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="kafscale.produce"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await client.close()


async def test_a_service_with_a_certificate_answers_front_doors_alone(
    etcd_server: EtcdProcess, keyspace: Keyspace, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = authority.role("produce")
    settings = settings_for(
        etcd_server.endpoint,
        keyspace,
        GRPC_CERTIFICATE=str(files.certificate),
        GRPC_KEY=str(files.key),
        GRPC_CA=str(files.ca),
    )
    dials = (GrpcIdentity(authority.role("frontdoor")).dial("produce"), plain)
    async with service(settings) as running:
        address = str((await running.logged("ready"))["grpc"])
        clients = [StreamClient(address, kind=Stream.BULK, dial=dial) for dial in dials]
        replies = [await client.send(echo_meta(), (b"x",)).future for client in clients]
        assert [reply.status for reply in replies] == [ReplyStatus.FINAL, ReplyStatus.REFUSED]
        for client in clients:
            await client.close()


async def test_a_certificate_that_cannot_be_used_is_named(
    etcd_server: EtcdProcess, keyspace: Keyspace, tmp_path: Path
) -> None:
    files = Authority(tmp_path).role("produce")
    settings = settings_for(
        etcd_server.endpoint,
        keyspace,
        GRPC_CERTIFICATE=str(files.certificate),
        GRPC_KEY=str(tmp_path / "absent.key"),
        GRPC_CA=str(files.ca),
    )
    async with service(settings) as running:
        assert await running.ended() == 1
        assert "absent.key" in str((await running.logged("cannot serve"))["why"])


async def test_sigterm_hands_over_answers_what_is_open_and_leaves_nothing_in_etcd(
    etcd: EtcdClient, etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with (
        live_view(etcd, keyspace) as view,
        service(settings_for(etcd_server.endpoint, keyspace)) as running,
    ):
        (instance,) = await until_instances(view, InstanceState.READY)
        client = StreamClient(instance.address, kind=Stream.BULK)
        held = client.send(echo_meta(HELD), ())
        assert bytes((await client.send(echo_meta(), (b"x",)).future).body) == b"echo:x"
        running.process.send_signal(signal.SIGTERM)
        assert bytes((await held.future).body) == b"before we left"
        assert await running.ended() == 0
        assert [line["event"] for line in running.lines if line["level"] != "info"] == []
        await until_instances(view)
        assert not (await etcd.prefix(keyspace.live_prefix())).kvs
        await client.close()


async def test_a_drain_that_does_not_end_is_cut_off(
    etcd: EtcdClient, etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    settings = settings_for(etcd_server.endpoint, keyspace, RACK="stuck", DRAIN_TIMEOUT_MS="500")
    async with live_view(etcd, keyspace) as view, service(settings) as running:
        await until_instances(view, InstanceState.READY)
        running.process.send_signal(signal.SIGTERM)
        await until_instances(view, InstanceState.DRAINING)
        assert (await running.http("/readyz"))[0] == 503
        assert await running.ended() == 0
        assert (await running.logged("drain timed out"))["level"] == "warning"


async def test_a_service_whose_event_loop_never_turns_ends_and_says_where_it_was(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with service(settings_for(etcd_server.endpoint, keyspace)) as running:
        client = StreamClient(str((await running.logged("ready"))["grpc"]), kind=Stream.BULK)
        assert (await client.send(echo_meta(SPIN), ()).future).status is ReplyStatus.LOST
        assert await running.ended() == STUCK_EXIT_CODE
        stuck = await running.logged("event loop stuck")
        assert "in spin" in str(stuck["stack"])
        await client.close()


async def test_a_service_that_stands_still_is_given_up_and_comes_back(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    async with service(settings_for(etcd_server.endpoint, keyspace)) as running:
        address = str((await running.logged("ready"))["grpc"])
        client = StreamClient(
            address, kind=Stream.BULK, limits=ClientLimits(keepalive_time_ms=500, keepalive_timeout_ms=500)
        )
        await client.connect()
        running.process.send_signal(signal.SIGSTOP)
        lost = await client.send(echo_meta(), (b"x",)).future
        assert lost.status is ReplyStatus.LOST
        assert "ping timeout" in lost.reason
        running.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(20):
            await client.connect()
        assert bytes((await client.send(echo_meta(), (b"y",)).future).body) == b"echo:y"
        await client.close()


async def test_etcd_that_is_late_is_waited_for(keyspace: Keyspace, tmp_path: Path) -> None:
    member = EtcdProcess(etcd_program(), tmp_path / "data", log_path=tmp_path / "etcd.log")
    async with service(settings_for(member.endpoint, keyspace)) as running:
        waiting = await running.logged("dependency unavailable")
        assert str(waiting["need"]) == f"etcd at {member.endpoint}"
        assert "KAFSCALE_ETCD_ENDPOINTS" in str(waiting["do"])
        status, reason = await running.http("/readyz")
        assert (status, member.endpoint in reason) == (503, True)
        assert (await running.http("/livez"))[0] == 200
        member.launch()
        try:
            await running.logged("ready")
            assert (await running.http("/readyz"))[0] == 200
            assert [line["event"] for line in running.lines].count("dependency unavailable") == 1
            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0
        finally:
            member.kill()


async def test_a_store_that_is_late_is_waited_for(
    etcd_server: EtcdProcess, keyspace: Keyspace, tmp_path: Path
) -> None:
    """There is a file where the directory should be."""
    place = tmp_path / "objects"
    place.write_bytes(b"in the way")
    settings = settings_for(etcd_server.endpoint, keyspace, USE_MEMORY_S3="0", OBJECT_DIR=str(place))
    async with service(settings) as running:
        assert str((await running.logged("dependency unavailable"))["need"]) == f"directory {place}"
        place.unlink()
        await running.logged("ready")


async def test_a_process_that_waits_stops_at_once(keyspace: Keyspace) -> None:
    async with service(settings_for("http://127.0.0.1:1", keyspace)) as running:
        await running.logged("dependency unavailable")
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_a_node_id_of_a_live_process_is_refused_in_a_sentence(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    settings = settings_for(etcd_server.endpoint, keyspace, NODE_ID="3")
    async with service(settings) as first:
        await first.logged("ready")
        async with service(settings) as second:
            refusal = await second.logged("cannot serve")
            assert "node id 3" in str(refusal["why"])
            assert "exception" not in refusal
            assert await second.ended() == 1


async def test_an_address_in_use_is_refused_in_a_sentence(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    taken = f"127.0.0.1:{etcd_server.client_port}"
    async with (
        service(settings_for(etcd_server.endpoint, keyspace, GRPC_LISTEN=taken)) as grpc_side,
        service(settings_for(etcd_server.endpoint, keyspace, HTTP_LISTEN=taken)) as http_side,
    ):
        for name, running in (("GRPC_LISTEN", grpc_side), ("HTTP_LISTEN", http_side)):
            assert f"KAFSCALE_{name}={taken}" in str((await running.logged("cannot serve"))["why"])
            assert await running.ended() == 1


@pytest.mark.parametrize(
    ("bound", "grpc", "found"),
    [
        ("0.0.0.0:8000", "pod-3.frontdoor:7000", "pod-3.frontdoor:8000"),
        ("[::]:8000", "[fd00::1]:7000", "[fd00::1]:8000"),
        ("127.0.0.1:8000", "pod-3:7000", "127.0.0.1:8000"),
    ],
)
def test_a_page_on_every_interface_is_found_where_grpc_is(bound: str, grpc: str, found: str) -> None:
    assert advertised_http(bound, grpc) == found

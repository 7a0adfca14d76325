"""The front door as real processes against a real etcd: alone, and as workers on one port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack, unpack

import pytest
from kafscale.frontdoor.worker import PLAN_VARIABLE, READY, make_page
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Instance, LiveView
from kafscale.testkit.etcd import etcd, etcd_server, keyspace
from tls_clients import Certificates

__all__ = ["etcd", "etcd_server", "keyspace"]

API_VERSIONS_0 = pack(">ihhih", 10, 18, 0, 9, -1)
START_TIMEOUT_S = 40
PLAN = {"number": 0, "workers": 1, "instance": "1/a", "sockets": []}


class Running:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            with contextlib.suppress(json.JSONDecodeError):
                self.lines.append(json.loads(line))

    def logged(self, event: str) -> list[dict[str, object]]:
        return [line for line in self.lines if line["event"] == event]

    async def ended(self) -> int:
        async with asyncio.timeout(30):
            code = await self.process.wait()
            await self._reader
            return code


@asynccontextmanager
async def front_door(
    server: EtcdProcess, keys: Keyspace, tmp_path: Path, **extra: str
) -> AsyncIterator[Running]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFSCALE_")}
    environment |= {
        "KAFSCALE_ETCD_ENDPOINTS": server.endpoint,
        "KAFSCALE_NAMESPACE": keys.namespace,
        "KAFSCALE_OBJECT_DIR": str(tmp_path),
        "KAFSCALE_LISTENERS": "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0",
        **extra,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kafscale.frontdoor", env=environment, stderr=PIPE
    )
    running = Running(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.ended()


async def registered(client: EtcdClient, keys: Keyspace, count: int = 1) -> tuple[Instance, ...]:
    """The front doors' registrations once `count` of them are READY."""
    view = LiveView(client, keys, "frontdoor")
    async with asyncio.timeout(START_TIMEOUT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(view.run())
        changed = asyncio.Event()
        view.subscribe(changed.set)
        while len(view.ready()) != count:
            await changed.wait()
            changed.clear()
        running.cancel()
    return view.ready()


async def asks_versions(port: int) -> bool:
    """Whether the server answers an ApiVersions request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(10):
            writer.write(API_VERSIONS_0)
            size, correlation_id, error = unpack(">iih", await reader.readexactly(10))
            await reader.readexactly(size - 6)
            return (correlation_id, error) == (9, 0)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def sample(text: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


async def test_a_front_door_registers_its_listeners_serves_and_leaves_cleanly(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path
) -> None:
    async with front_door(
        etcd_server, keyspace, tmp_path, KAFSCALE_ADVERTISED_LISTENERS="PLAINTEXT://kafka.example:0"
    ) as running:
        (instance,) = await registered(etcd, keyspace)
        (shown,) = instance.listeners
        assert (shown.name, shown.host) == ("PLAINTEXT", "kafka.example")
        assert await asks_versions(shown.port)
        ports = {line["listener"]: line["port"] for line in running.logged("listening")}
        assert ports["PLAINTEXT"] == shown.port
        assert await asks_versions(int(str(ports["SECOND"])))
        text = await asyncio.to_thread(scrape, instance.http_address)
        assert sample(text, 'kafscale_frontdoor_requests_total{api="ApiVersions"}') == 2
        _, idle = await asyncio.open_connection("127.0.0.1", shown.port)
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        idle.close()
        assert running.logged("drained")


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_who_leaves_says_so_and_still_takes_clients_a_while(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path, workers: str
) -> None:
    """Others stop to name it before its port is closed."""
    extra = {"KAFSCALE_FRONTDOOR_NOTICE_MS": "5000", "KAFSCALE_FRONTDOOR_WORKERS": workers}
    async with (
        front_door(etcd_server, keyspace, tmp_path, KAFSCALE_NODE_ID="1", **extra) as leaving,
        front_door(etcd_server, keyspace, tmp_path, KAFSCALE_NODE_ID="2"),
    ):
        one, _ = await registered(etcd, keyspace, 2)
        leaving.process.send_signal(signal.SIGTERM)
        (two,) = await registered(etcd, keyspace, 1)
        assert two.node_id == 2
        asks_until = time.monotonic() + 1  # a moment passes before a port that closes at once is closed
        while time.monotonic() < asks_until:
            assert await asks_versions(one.listeners[0].port)
            await asyncio.sleep(0.05)
        assert await leaving.ended() == 0
        with pytest.raises(ConnectionRefusedError):
            await asks_versions(one.listeners[0].port)


async def test_workers_share_ports_and_one_registration_and_one_that_dies_is_replaced(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path
) -> None:
    async with front_door(etcd_server, keyspace, tmp_path, KAFSCALE_FRONTDOOR_WORKERS="2") as running:
        (instance,) = await registered(etcd, keyspace)
        port = instance.listeners[0].port
        assert all(await asyncio.gather(*(asks_versions(port) for _ in range(40))))
        text = await asyncio.to_thread(scrape, instance.http_address)
        assert sample(text, 'kafscale_frontdoor_requests_total{api="ApiVersions"}') == 40
        accepted = {line["worker"] for line in running.logged("listening")}
        assert accepted == {"0", "1"}
        assert sample(text, "kafscale_frontdoor_workers_ready") == 2
        assert sample(text, "kafscale_frontdoor_memory_budget_bytes{") > 0
        for worker in ("0", "1"):
            assert f'kafscale_frontdoor_memory_reserved_bytes{{worker="{worker}"}}' in text
        victim = children_of(running.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(START_TIMEOUT_S):
            while len(running.logged("listening")) < 6:
                await asyncio.sleep(0.05)
        assert running.logged("worker died")[0]["exit_code"] == -9
        assert all(await asyncio.gather(*(asks_versions(port) for _ in range(40))))
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert len(running.logged("worker ended")) == 2


async def test_a_worker_answers_for_its_metrics_and_ends_with_its_parent(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    page = make_page(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kafscale.frontdoor.worker",
        f"--etcd-endpoints={etcd_server.endpoint}",
        f"--namespace={keyspace.namespace}",
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=[page],
        env={**os.environ, PLAN_VARIABLE: json.dumps(PLAN | {"page": page})},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        assert await process.stdout.readline() == READY
        process.stdin.write(b"metrics\n")
        word, size = (await process.stdout.readline()).split()
        text = await process.stdout.readexactly(int(size))
        assert word == b"metrics"
        assert b"kafscale_frontdoor_connections" in text
        process.stdin.close()
        assert await process.wait() == 0
    os.close(page)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_taken_port_is_said_in_one_sentence(workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = [f"--listeners=PLAINTEXT://127.0.0.1:{port}", f"--frontdoor-workers={workers}"]
        flags.append("--max-connections=1000000000")  # more than can be open: the log says so first
        command = [sys.executable, "-m", "kafscale.frontdoor", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    *logged, said = done.stderr.splitlines()
    assert any("fewer connections than max.connections" in line for line in logged)
    assert said == f"listener PLAINTEXT cannot have 127.0.0.1:{port}: Address already in use"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_files_that_cannot_be_used_end_the_start_with_one_sentence(tmp_path: Path, workers: str) -> None:
    missing = tmp_path / "tls.crt"
    flags = ["--listeners=SSL://127.0.0.1:0", f"--ssl-certificate={missing}", f"--ssl-key={missing}"]
    command = [sys.executable, "-m", "kafscale.frontdoor", *flags, f"--frontdoor-workers={workers}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"listener SSL: {missing}: No such file or directory"


async def test_workers_serve_tls_behind_a_proxy_and_count_together(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    extra = {f"KAFSCALE_{name.upper()}": str(value) for name, value in certificates.mutual().items()}
    extra |= {"KAFSCALE_FRONTDOOR_WORKERS": "2", "KAFSCALE_PROXY_PROTOCOL": "SSL=127.0.0.0/8"}
    async with front_door(etcd_server, keyspace, tmp_path, **extra) as running:
        (instance,) = await registered(etcd, keyspace)
        (listener,) = instance.listeners
        assert listener.name == "SSL"
        alice = certificates.context(certificates.clients.client("alice"))
        header = b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n"
        asking = (asyncio.to_thread(asks_through_proxy, listener.port, header, alice) for _ in range(20))
        assert all(await asyncio.gather(*asking))
        text = await asyncio.to_thread(scrape, instance.http_address)
        succeeded = 'kafscale_frontdoor_tls_handshakes_total{listener="SSL",outcome="succeeded"}'
        assert sample(text, succeeded) == 20
        assert sample(text, "kafscale_frontdoor_tls_certificate_seconds{") > 86_400
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


def asks_through_proxy(port: int, header: bytes, context: ssl.SSLContext) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(header)
        with context.wrap_socket(raw, server_hostname="localhost") as client:
            client.sendall(API_VERSIONS_0)
            return client.recv(8)[4:] == pack(">i", 9)


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if "worker" in Path(f"/proc/{child}/cmdline").read_text()]

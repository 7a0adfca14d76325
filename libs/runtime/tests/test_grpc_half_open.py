"""Connections to a gRPC port that send nothing.

They need no certificate, and gRPC once ended the process because of them (tools/grpc_reload_crash). So the server is a
process of its own here.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.runtime.stream.options import CONNECTIONS_MAX, Stream
from kafscale.testkit.authority import Authority
from stream_harness import meta

SERVER = Path(__file__).with_name("half_open_server.py")
DESCRIPTORS = 8_192
RENEWALS = 12


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """Of this process, and of those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(DESCRIPTORS, before[1])), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def server(files: PemFiles, *more: str) -> AsyncIterator[tuple[Process, int]]:
    """The process, and its port."""
    words = (str(files.certificate), str(files.key), str(files.ca), *more)
    process = await asyncio.create_subprocess_exec(sys.executable, SERVER, *words, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while not (line := await process.stdout.readline()).strip().isdigit():
            assert line, "the process has ended"
        yield process, int(line)
    finally:
        process.stdin.close()
        await process.wait()


@contextmanager
def held(port: int, connections: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing, and are closed together."""
    opened = []
    try:
        for _ in range(connections):
            one = socket.create_connection(("127.0.0.1", port))
            one.setblocking(False)
            opened.append(one)
        yield opened
    finally:
        for one in opened:
            one.close()


async def is_answered(port: int, door: GrpcIdentity) -> bool:
    """Whether a front door is. It tries again until the server has closed the connections of others."""
    async with asyncio.timeout(60):
        while True:
            client = StreamClient(f"127.0.0.1:{port}", kind=Stream.BULK, dial=door.dial("produce"))
            try:
                reply = await client.send(meta(), (b"hi",)).future
            finally:
                await client.close()
            if reply.status is ReplyStatus.FINAL:
                return bytes(reply.body) == b"echo:hi"


async def until_closed(opened: list[socket.socket]) -> None:
    """Returns when the server has closed all of them."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        for one in opened:
            with suppress(ConnectionError):
                assert await loop.sock_recv(one, 1) == b"", (
                    "the server sends nothing to a client that says nothing"
                )


async def test_silent_connections_that_close_together_do_not_end_the_process(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    door = GrpcIdentity(authority.role("frontdoor"))
    async with server(authority.role("produce")) as (process, port):
        for _ in range(3):
            with held(port, 1_000):
                pass
        assert await is_answered(port, door)
        assert process.returncode is None


async def test_silent_connections_do_not_end_a_process_that_renews_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(authority.role("produce"), "renewing") as (process, port):
        assert process.stdout is not None
        with held(port, 1_000):
            async with asyncio.timeout(60):
                for _ in range(RENEWALS):
                    assert await process.stdout.readline() == b"renewed\n"
        process.kill()  # it would renew once for each connection that waits
        assert await process.wait() == -signal.SIGKILL


async def test_a_new_certificate_is_served_while_silent_connections_come_and_go(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    files = first.role("produce")
    door = GrpcIdentity(second.role("frontdoor"))
    async with server(files) as (process, port):
        with held(port, 500):
            second.trusted_in(files)
            second.role("produce", into=files)
            with held(port, 500):
                assert await is_answered(port, door)
        assert await is_answered(port, door)
        assert process.returncode is None


async def test_silent_connections_are_bounded(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(authority.role("produce")) as (_, port):
        with held(port, CONNECTIONS_MAX + 200) as opened:
            await until_closed(opened[-200:])
            with pytest.raises(BlockingIOError):
                opened[0].recv(1)  # it is open


async def test_a_silent_connection_ends_in_time_and_leaves_its_place(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    door = GrpcIdentity(authority.role("frontdoor"))
    async with server(authority.role("produce")) as (_, port):
        with held(port, CONNECTIONS_MAX) as opened:
            await until_closed(opened)
            assert await is_answered(port, door)

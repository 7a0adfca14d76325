"""Probes and scrapes are answered, also beside connections that ask for nothing."""

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from kafscale.runtime.addresses import split_address
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.health import Health
from kafscale.runtime.http import CONNECTIONS_MAX, HttpFace, HttpServer, serving
from kafscale.runtime.metrics import Metrics

DONE_S = 30
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def face() -> AsyncIterator[tuple[str, int]]:
    clock = SystemClock()
    watch = LoopWatch(clock)
    made = HttpFace(health=Health("produce"), watch=watch, clock=clock, metrics=Metrics("produce"))
    made.names = frozenset({"node1.example.com"})
    async with serving(made, "127.0.0.1:0") as address, asyncio.timeout(DONE_S):
        yield split_address(address)


async def half_asked(host: str, port: int) -> Connection:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /metrics HTTP/1.1\r\n")
    await writer.drain()
    return reader, writer


async def livez(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_probe_is_answered_beside_any_number_of_connections_that_do_not_ask() -> None:
    async with face() as (host, port):
        slow = [await half_asked(host, port) for _ in range(2 * CONNECTIONS_MAX)]
        for _ in range(3):
            assert (await livez(host, port)).startswith(b"HTTP/1.1 200 OK")
        ended = [reader.at_eof() or reader.exception() is not None for reader, _ in slow]
        assert all(ended[:CONNECTIONS_MAX]), "the oldest give way"
        assert not any(ended[-CONNECTIONS_MAX // 2 :])
        for _, writer in slow:
            writer.transport.abort()


async def get(path: str, *hosts: str) -> bytes:
    """The status line."""
    async with face() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        lines = "".join(f"Host: {each}\r\n" for each in hosts)
        writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "hosts",
    [
        (),
        ("10.1.2.3:9102",),
        ("127.0.0.1",),
        ("[::1]:9102",),
        ("localhost:80",),
        ("produce:9102",),
        ("kafscale-produce.kafscale.svc:9102",),
        ("kafscale-produce.kafscale.svc.cluster.local",),
        ("ip-10-0-0-1.eu-west-1.compute.internal",),
        ("Node1.Example.com:9102",),
    ],
)
async def test_a_scraper_by_address_or_name_is_answered(hosts: tuple[str, ...]) -> None:
    assert await get("/metrics", *hosts) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/", "/metrics?x"])
@pytest.mark.parametrize(
    "hosts",
    [
        ("evil.example",),
        ("evil.example:9102",),
        ("127.0.0.1.evil.example",),
        ("node1.example.com.evil.example",),
        ("[evil.example]:80",),
        ("",),
        ("127.0.0.1", "evil.example"),
    ],
)
async def test_a_name_that_somebody_pointed_here_reads_nothing(path: str, hosts: tuple[str, ...]) -> None:
    assert await get(path, *hosts) == b"HTTP/1.1 403 Forbidden"


async def test_a_probe_is_answered_by_any_name() -> None:
    assert await get("/livez", "evil.example") == b"HTTP/1.1 200 OK"


def test_a_client_that_leaves_before_its_answer_is_no_event() -> None:
    """With uvloop, as in a service."""
    troubles: list[object] = []
    answered = asyncio.Event()

    class Slow(HttpServer):
        @property
        def open(self) -> list[asyncio.StreamWriter]:
            return list(self._open)

        async def respond(self, head: bytes) -> bytes:
            await answered.wait()
            return b"x" * (1 << 20)

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        before, server = asyncio.all_tasks(), Slow()
        async with serving(server, "127.0.0.1:0") as address:
            for linger in (b"", struct.pack("ii", 1, 0)):
                _, writer = await asyncio.open_connection(*split_address(address))
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await writer.drain()
                if linger:
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                else:
                    writer.close()
            while not (len(server.open) == 2 and any(each.is_closing() for each in server.open)):
                await asyncio.sleep(0.01)  # until the server has seen the reset
            serving_tasks = asyncio.all_tasks() - before
            answered.set()
            await asyncio.wait(serving_tasks)
        assert [task.exception() for task in serving_tasks] == [None, None]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(leave())
    gc.collect()
    assert troubles == []

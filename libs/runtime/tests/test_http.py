"""Probes and scrapes are answered, also beside connections that ask for nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.runtime.addresses import split_address
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.health import Health
from kafscale.runtime.http import CONNECTIONS_MAX, HttpFace, serving
from kafscale.runtime.metrics import Metrics

DONE_S = 30
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def face() -> AsyncIterator[tuple[str, int]]:
    clock = SystemClock()
    watch = LoopWatch(clock)
    made = HttpFace(health=Health("produce"), watch=watch, clock=clock, metrics=Metrics("produce"))
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

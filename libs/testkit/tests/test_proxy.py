"""The proxy does to a connection what each of its faults says, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio
from kafscale.testkit.proxy import FaultProxy, Way

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """In front of a server that answers every line in capitals, and says BYE at the end of input."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in reader:
                writer.write(line.upper())
            writer.write(b"BYE\n")
            await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy("127.0.0.1", port) as faults:
        yield faults
    server.close()


Connect = Callable[[FaultProxy], Awaitable[Pair]]


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections to a proxy, and closes them at the end."""
    pairs: list[Pair] = []

    async def opened(proxy: FaultProxy) -> Pair:
        pairs.append(await asyncio.open_connection("127.0.0.1", proxy.port))
        return pairs[-1]

    yield opened
    for _, writer in pairs:
        writer.transport.abort()


async def ask(pair: Pair, line: bytes) -> bytes:
    pair[1].write(line)
    async with asyncio.timeout(5):
        return await pair[0].readline()


async def is_reset(pair: Pair) -> bool:
    async with asyncio.timeout(5):
        try:
            return await pair[0].read() == b"" and False
        except ConnectionResetError:
            return True


async def test_without_faults_bytes_pass_both_ways(proxy: FaultProxy, connect: Connect) -> None:
    pair = await connect(proxy)
    assert await ask(pair, b"hello\n") == b"HELLO\n"
    assert (proxy.up.passed_bytes, proxy.down.passed_bytes) == (6, 6)
    big = b"x" * 60_000 + b"\n"
    assert await asyncio.wait_for(ask_big(pair, big), 5) == big.upper()


async def ask_big(pair: Pair, line: bytes) -> bytes:
    pair[1].write(line)
    return await pair[0].readexactly(len(line))


async def test_silence_holds_bytes_back_and_gives_them_out_later(proxy: FaultProxy, connect: Connect) -> None:
    pair = await connect(proxy)
    await ask(pair, b"a\n")
    proxy.silence(Way.DOWN)
    answer = asyncio.create_task(ask(pair, b"b\n"))
    await proxy.until(lambda p: p.up.passed_bytes == 4)
    assert not answer.done()
    assert proxy.down.passed_bytes == 2
    proxy.heal()
    assert await answer == b"B\n"


async def test_a_lost_answer_is_lost_and_its_connection_is_reset_on_healing(
    proxy: FaultProxy, connect: Connect
) -> None:
    losing = await connect(proxy)
    await ask(losing, b"a\n")
    proxy.lose_answers()
    losing[1].write(b"b\n")
    await proxy.until(lambda p: p.down.swallowed_bytes == 2)
    assert proxy.up.passed_bytes == 4, "the request went through"
    proxy.heal()
    assert await is_reset(losing)
    assert await ask(await connect(proxy), b"c\n") == b"C\n"


async def test_a_reset_is_seen_as_one(proxy: FaultProxy, connect: Connect) -> None:
    pair = await connect(proxy)
    await ask(pair, b"a\n")
    proxy.reset_all()
    assert await is_reset(pair)
    await proxy.until(lambda p: p.open_links == 0)


async def test_refused_connections_are_reset_and_open_ones_live_on(
    proxy: FaultProxy, connect: Connect
) -> None:
    before = await connect(proxy)
    await ask(before, b"a\n")
    proxy.refuse()
    assert await is_reset(await connect(proxy))
    assert await ask(before, b"b\n") == b"B\n"


async def test_a_server_that_is_away_is_a_reset(proxy: FaultProxy, connect: Connect) -> None:
    async with FaultProxy("127.0.0.1", 1) as nowhere:
        assert await is_reset(await connect(nowhere))

"""TCP in memory has the order, the ends and the back-pressure of real sockets: the same stories are told over both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from kafscale.testkit.instances import Instance, InstanceLoop
from kafscale.testkit.memory_grpc.network import SILENCE_S, Network

Story = Callable[[str], Coroutine[Any, Any, None]]
MIB = 1 << 20


def over_sockets(story: Story) -> None:
    asyncio.run(story("127.0.0.1"))


def in_memory(story: Story) -> None:
    """Server and client are one node each; the story runs as the client, and serves with `as_server`."""
    with asyncio.Runner(loop_factory=lambda: InstanceLoop(Network(lambda *_: 0.001))) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, InstanceLoop)
        with loop.running(Instance("client")):
            runner.run(story("server"))


@pytest.fixture(params=[over_sockets, in_memory])
def told(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    found: Callable[[Story], None] = request.param
    return found


@asynccontextmanager
async def listening(
    host: str, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
) -> AsyncIterator[tuple[Any, int]]:
    """The server and its port. At the end each connection has been served."""
    loop, served = asyncio.get_running_loop(), list[asyncio.Task[Any]]()

    async def serve_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        await serve(reader, writer)
        with suppress(ConnectionResetError):
            await writer.wait_closed()

    if not isinstance(loop, InstanceLoop):
        server = await asyncio.start_server(serve_it, host, 0)
    else:
        with loop.running(Instance("server")):
            task = asyncio.ensure_future(asyncio.start_server(serve_it, host, 0))
        server = await task
    yield server, server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.gather(*served)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"bye")
    writer.close()


def test_bytes_come_back_in_order_and_the_end_behind_them(told: Callable[[Story], None]) -> None:
    async def story(host: str) -> None:
        async with listening(host, echo) as (_, port):
            reader, writer = await asyncio.open_connection(host, port)
            sent = b"".join(b"%d," % number for number in range(50_000))
            for at in range(0, len(sent), 7_000):
                writer.write(sent[at : at + 7_000])
            assert await reader.readexactly(len(sent)) == sent
            writer.close()

    told(story)


def test_nobody_listens_at_a_port_that_was_closed(told: Callable[[Story], None]) -> None:
    async def story(host: str) -> None:
        async with listening(host, echo) as (server, port):
            server.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, port)

    told(story)


def test_a_server_that_closes_is_an_end_of_file_behind_what_it_sent(told: Callable[[Story], None]) -> None:
    async def hello(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async def story(host: str) -> None:
        async with listening(host, hello) as (_, port):
            reader, writer = await asyncio.open_connection(host, port)
            assert await reader.read() == b"hello"
            writer.close()

    told(story)


def test_a_writer_waits_for_a_reader_that_does_not_read(told: Callable[[Story], None]) -> None:
    async def story(host: str) -> None:
        reads, size = asyncio.Event(), list[int]()

        async def later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reads.wait()
            while data := await reader.read(MIB):
                size.append(len(data))
            writer.close()

        async with listening(host, later) as (_, port):
            _, writer = await asyncio.open_connection(host, port)
            written = 0
            while writer.transport.get_write_buffer_size() < MIB:
                writer.write(bytes(MIB))
                written += MIB
                await asyncio.sleep(0)
            draining = asyncio.ensure_future(writer.drain())
            await asyncio.sleep(0)
            assert not draining.done()
            reads.set()
            await draining
            writer.close()
        assert sum(size) == written

    told(story)


def test_the_end_of_a_killed_process_is_a_reset_and_a_long_silence_too() -> None:
    async def story(host: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, InstanceLoop)
        network = loop.network

        async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionResetError):
                await echo(reader, writer)
            writer.close()

        assert network is not None
        async with listening(host, ends) as (_, port):
            reader, writer = await asyncio.open_connection(host, port)
            network.cut("client", "server")
            writer.write(b"late")
            loop.call_later(SILENCE_S - 1, network.heal, "client", "server")
            assert await reader.readexactly(4) == b"late"
            network.cut("client", "server")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            network.heal("client", "server")
            reader, writer = await asyncio.open_connection(host, port)
            network.drop("server", "killed")
            with pytest.raises(ConnectionResetError):
                await reader.read()

    in_memory(story)

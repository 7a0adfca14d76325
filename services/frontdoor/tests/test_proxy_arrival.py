"""Connections through a proxy: whose address counts, and which connections are closed."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack

import pytest
from door_harness import until
from door_sockets import API_VERSIONS_0, System, close, framed, on_uvloop, read_answer, running
from kafscale.frontdoor.listeners.proxy_protocol import SIGNATURE
from test_proxy_protocol import binary, line
from tls_clients import Certificates, asks_versions, is_of

INIT_PRODUCER_ID = framed(22, 0, 1, pack(">hi", -1, 0))
LOCAL_CHECK = SIGNATURE + pack(">BBH", 0x20, 0, 0)
HEADERS: list[Callable[[str, str, int], bytes]] = [line, binary]


def behind(networks: str = "127.0.0.0/8", **more: int | str) -> dict[str, int | str]:
    return {"listeners": "OUT://127.0.0.1:0", "proxy_protocol": f"OUT={networks}", **more}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("client", ["203.0.113.7", "2001:db8::7"])
def test_the_client_is_the_one_that_the_proxy_names(
    header: Callable[[str, str, int], bytes], client: str
) -> None:
    async def run() -> None:
        async with running(**behind()) as system:
            _, writer = await system.connect()
            writer.write(header(client, client, 4711) + INIT_PRODUCER_ID)
            await until(lambda: len(system.service.held) == 1)
            assert system.service.held[0].meta.peer == f"{client}:4711"
            await close(writer)
            await until(lambda: not system.door.gateway.connections)

    on_uvloop(run)()


@on_uvloop
async def test_a_header_may_come_in_pieces_and_what_follows_with_it() -> None:
    async with running(**behind()) as system:
        reader, writer = await system.connect()
        data = line("203.0.113.7", "127.0.0.1", 1) + API_VERSIONS_0 * 3
        for at in range(0, len(data), 7):
            writer.write(data[at : at + 7])
            await writer.drain()
            await asyncio.sleep(0)
        assert [(await read_answer(reader))[0] for _ in range(3)] == [9] * 3
        await close(writer)


@on_uvloop
async def test_a_proxy_that_asks_for_itself_is_the_client() -> None:
    async with running(**behind()) as system:
        _, writer = await system.connect()
        writer.write(LOCAL_CHECK + INIT_PRODUCER_ID)
        await until(lambda: len(system.service.held) == 1)
        assert system.service.held[0].meta.peer.startswith("127.0.0.1:")
        await close(writer)


@on_uvloop
async def test_limits_count_the_clients_address_and_not_the_proxys() -> None:
    limits = {"max_connections_per_ip": 1, "max_connections_per_ip_overrides": "203.0.113.9:2"}
    async with running(**behind(**limits)) as system:
        kept = []
        for address, served in (
            ("203.0.113.7", True),
            ("203.0.113.8", True),
            ("203.0.113.7", False),
            ("203.0.113.9", True),
            ("203.0.113.9", True),
            ("203.0.113.9", False),
        ):
            reader, writer = await system.connect()
            kept.append(writer)
            writer.write(line(address, "127.0.0.1", 1) + API_VERSIONS_0)
            assert await is_served(reader) is served, address
        for writer in kept:
            await close(writer)


async def is_served(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        try:
            return (await read_answer(reader))[0] == 9
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


@pytest.mark.parametrize(
    ("networks", "data"),
    [
        ("10.0.0.0/8", line("203.0.113.7", "127.0.0.1", 1) + API_VERSIONS_0),
        ("127.0.0.0/8", API_VERSIONS_0),
        ("127.0.0.0/8", b"PROXY TCP4 nonsense\r\n" + API_VERSIONS_0),
    ],
)
def test_without_a_header_or_from_elsewhere_the_connection_is_closed(networks: str, data: bytes) -> None:
    async def run() -> None:
        async with running(**behind(networks)) as system:
            reader, writer = await system.connect()
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                assert not await is_served(reader)
            assert system.door.gateway.metrics.hung_up.labels("proxy_protocol").value == 1
            assert not system.door.gateway.connections
            await close(writer)

    on_uvloop(run)()


@on_uvloop
async def test_a_header_has_a_deadline_also_if_half_of_it_came() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafscale.frontdoor.listeners.proxy_arrival.HEADER_S", 0.3)
        async with running(**behind()) as system:
            refused = system.door.gateway.metrics.hung_up.labels("proxy_protocol")
            waiting = [await system.connect() for _ in range(2)]
            waiting[-1][1].write(b"PROXY TCP4 ")
            await until(lambda: refused.value == 2)
            for _, writer in waiting:
                await close(writer)


@on_uvloop
async def test_of_those_who_wait_for_their_header_the_oldest_makes_room() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafscale.frontdoor.listeners.proxy_arrival.HEADER_S", 60)
        patch.setattr("kafscale.frontdoor.listeners.arrival.ARRIVALS_MAX", 5)
        async with running(**behind()) as system:
            waiting = [await system.connect() for _ in range(8)]
            async with asyncio.timeout(10):
                for reader, _ in waiting[:3]:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
            assert len(system.entrances.arrivals) == 5
            for _, writer in waiting:
                await close(writer)


@on_uvloop
async def test_connections_that_wait_for_their_header_end_with_the_process() -> None:
    async with running(**behind()) as system:
        reader, writer = await system.connect()
        await until(lambda: len(system.entrances.arrivals) == 1)
        system.entrances.close()
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await until(lambda: len(system.entrances.arrivals) == 0)
        await close(writer)


@asynccontextmanager
async def proxy(to: int, header: bytes) -> AsyncIterator[int]:
    """The port of a proxy that sends the header and the client's first bytes in one write, as HAProxy does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", to)
        forth.write(header + await reader.read(1 << 16))
        with contextlib.suppress(ConnectionError):
            async with asyncio.TaskGroup() as copying:
                copying.create_task(copy(reader, forth))
                copying.create_task(copy(back, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("header", HEADERS)
def test_the_header_comes_before_tls(header: Callable[[str, str, int], bytes], tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = certificates.mutual(proxy_protocol="SSL=127.0.0.0/8")

    async def run() -> None:
        async with (
            running(**settings) as system,
            proxy(system.port, header("203.0.113.7", "127.0.0.1", 4711)) as port,
        ):
            alice = certificates.context(certificates.clients.client("alice"))
            through = System(**{**vars(system), "ports": {"SSL": port}})
            assert await asks_versions(through, alice)
            assert not await asks_versions(system, alice), "TLS without a header"
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=alice, server_hostname="localhost"
            )
            writer.write(INIT_PRODUCER_ID)
            await until(lambda: len(system.service.held) == 1)
            meta = system.service.held[0].meta
            assert meta.peer == "203.0.113.7:4711"
            assert is_of(meta.principal, "alice")
            with contextlib.suppress(ssl.SSLError):
                await close(writer)

    on_uvloop(run)()

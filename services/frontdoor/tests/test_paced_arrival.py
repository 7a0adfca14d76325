"""Connections that begin too fast, on real sockets: held before anything of them is read, then begun or closed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from door_harness import until
from door_sockets import API_VERSIONS_0, close, on_uvloop, read_answer, running
from kafscale.access.quota import QuotaEntity, QuotaKey
from kafscale.frontdoor.listeners import arrival
from test_proxy_protocol import line
from tls_clients import Certificates, asks_versions

HERE = QuotaEntity(ip="127.0.0.1")
RATE = QuotaKey.CONNECTION_CREATION_RATE
SMALL = {"quota_window_num": 2}
"""A burst of one second."""


async def is_served(reader: asyncio.StreamReader) -> bool:
    """False: the connection was closed without an answer."""
    try:
        return bool(await reader.read(1))
    except ConnectionResetError:
        return False


@on_uvloop
async def test_beyond_the_rate_a_connection_begins_later_and_what_it_has_sent_is_answered() -> None:
    async with running(max_connection_creation_rate="2", **SMALL) as system:
        began = time.monotonic()
        opened = [await system.connect() for _ in range(4)]
        for _, writer in opened:
            writer.write(API_VERSIONS_0)
        for reader, _ in opened:
            assert (await read_answer(reader))[0] == 9
        assert time.monotonic() - began > 0.9
        for _, writer in opened:
            await close(writer)


@on_uvloop
async def test_an_address_beyond_its_quota_is_held_and_closed_unanswered() -> None:
    async with running(**SMALL) as system:
        system.quotas.put(HERE, RATE, 1)
        first_reader, first = await system.connect()
        first.write(API_VERSIONS_0)
        assert (await read_answer(first_reader))[0] == 9
        began = time.monotonic()
        reader, writer = await system.connect()
        writer.write(API_VERSIONS_0)
        assert not await is_served(reader)
        assert time.monotonic() - began > 0.3, "it is held before it is closed"
        assert len(system.door.gateway.connections) == 1
        await close(writer)
        await close(first)


@on_uvloop
async def test_a_large_request_that_comes_early_is_whole_when_the_connection_begins() -> None:
    """Only some bytes are kept meanwhile; the rest stays in the socket."""
    async with running(max_connection_creation_rate="1", **SMALL) as system:
        _, first = await system.connect()
        reader, writer = await system.connect()
        writer.write(API_VERSIONS_0 * 3_000)
        assert [(await read_answer(reader))[0] for _ in range(3_000)] == [9] * 3_000
        await close(first)
        await close(writer)


@on_uvloop
async def test_the_clients_address_counts_behind_a_proxy() -> None:
    behind = {"listeners": "OUT://127.0.0.1:0", "proxy_protocol": "OUT=127.0.0.0/8"}
    async with running(**behind, **SMALL) as system:
        system.quotas.put(QuotaEntity(ip="203.0.113.7"), RATE, 1)
        for address, served in (("203.0.113.7", True), ("203.0.113.8", True), ("203.0.113.7", False)):
            reader, writer = await system.connect()
            writer.write(line(address, "127.0.0.1", 1) + API_VERSIONS_0)
            assert await is_served(reader) is served, address
            await close(writer)


def test_a_handshake_of_tls_begins_when_the_connection_does(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    async def run() -> None:
        tls = certificates.settings()
        async with running(max_connection_creation_rate="1", **tls, **SMALL) as system:
            _, first = await system.connect()
            began = time.monotonic()
            assert await asks_versions(system, certificates.context())
            assert time.monotonic() - began > 0.9
            await close(first)

    on_uvloop(run)()


@on_uvloop
async def test_no_more_than_some_wait() -> None:
    async with running(max_connection_creation_rate="1", **SMALL) as system:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrival, "ARRIVALS_MAX", 2)
            opened = [await system.connect() for _ in range(5)]
            for _, writer in opened:
                writer.write(API_VERSIONS_0)
            answers = await asyncio.gather(*(is_served(reader) for reader, _ in opened))
        assert sorted(answers) == [False, False, True, True, True]
        for _, writer in opened:
            await close(writer)


@on_uvloop
async def test_those_that_wait_end_with_the_front_door_and_leave_nothing() -> None:
    async with running(max_connection_creation_rate="1", **SMALL) as system:
        opened = [await system.connect() for _ in range(3)]
        await until(lambda: len(system.entrances._paced) == 2)
        opened[1][1].close()
        system.entrances.close()
        assert not await is_served(opened[2][0])
        await until(lambda: len(system.entrances._paced) == 0)
        for _, writer in opened:
            await close(writer)

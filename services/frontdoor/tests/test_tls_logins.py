"""Logins on listeners with TLS, over real sockets: after the handshake, and named by the login alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from door_harness import until
from door_sockets import System, close, framed, on_uvloop, produce_frame, read_answer, running
from kafscale.frontdoor.exchange import Caller
from login_harness import ALICE, alice, authenticate_body, handshake_body, plain
from tls_clients import Certificates, Streams, connect

LISTENER = "SASL_SSL"
SASL = {"listeners": f"{LISTENER}://127.0.0.1:0", "sasl_enabled_mechanisms": "PLAIN"}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def login(streams: Streams, password_token: bytes) -> int:
    """The error code of the login."""
    reader, writer = streams
    writer.write(framed(17, 1, 1, handshake_body("PLAIN")))
    assert (await read_answer(reader))[1][:2] == bytes(2)
    writer.write(framed(36, 2, 2, authenticate_body(password_token)))
    _, body = await read_answer(reader)
    return int.from_bytes(body[1:3], "big")  # after the header's tags


def callers(system: System) -> list[Caller]:
    return [connection.caller for connection in system.door.gateway.connections]


@on_uvloop
async def test_a_client_logs_in_over_tls_and_is_served(certificates: Certificates) -> None:
    async with running(alice(), **certificates.settings(**SASL)) as system:
        streams = await connect(system, certificates.context(), LISTENER)
        assert await login(streams, plain()) == 0
        assert [caller.principal for caller in callers(system)] == [f"User:{ALICE}"]
        streams[1].write(produce_frame(3, b"records"))
        assert (await read_answer(streams[0]))[0] == 3
        assert system.service.produced == [b"records"]
        assert len(system.door.gateway.strangers) == 0
        await close(streams[1])
        await until(lambda: not system.door.gateway.connections)


@on_uvloop
async def test_the_login_and_not_the_certificate_names_the_client(certificates: Certificates) -> None:
    context = certificates.context(certificates.clients.client("bob"))
    async with running(alice(), **certificates.mutual(**SASL)) as system:
        streams = await connect(system, context, LISTENER)
        assert await login(streams, plain()) == 0
        assert [caller.principal for caller in callers(system)] == [f"User:{ALICE}"]
        await close(streams[1])


@on_uvloop
async def test_a_certificate_is_no_login(certificates: Certificates) -> None:
    context = certificates.context(certificates.clients.client("bob"))
    async with running(alice(), **certificates.mutual(**SASL)) as system:
        reader, writer = await connect(system, context, LISTENER)
        writer.write(produce_frame(1, b"records"))
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        assert system.service.produced == []
        await close(writer)


@on_uvloop
async def test_a_wrong_password_is_answered_over_tls_and_ends_the_connection(
    certificates: Certificates,
) -> None:
    settings = certificates.settings(**SASL, connection_failed_authentication_delay_ms=0)
    async with running(alice(), **settings) as system:
        streams = await connect(system, certificates.context(), LISTENER)
        assert await login(streams, plain(password="wrong")) == 58
        async with asyncio.timeout(10):
            assert await streams[0].read() == b""
        await close(streams[1])

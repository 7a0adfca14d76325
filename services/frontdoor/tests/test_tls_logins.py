"""Logins on listeners with TLS, over real sockets: after the handshake, and named by the login alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from door_harness import until
from door_sockets import System, close, framed, on_uvloop, produce_frame, read_answer, running
from kafscale.frontdoor.exchange import Caller
from kafscale.testkit.authority import Authority
from login_harness import ALICE, alice, authenticate_body, handshake_body, plain
from tls_clients import Certificates, Streams, asks_versions, connect, handshakes

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
        assert len(system.door.gateway.unauthenticated) == 0
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


@on_uvloop
async def test_a_password_alone_is_not_enough_where_a_certificate_is_required_too(
    certificates: Certificates, tmp_path: Path
) -> None:
    """KIP-684: `ssl.client.auth` holds on SASL_SSL."""
    stranger = Authority(tmp_path / "strangers").client("eve")
    async with running(alice(), **certificates.mutual(**SASL)) as system:
        for context in (certificates.context(), certificates.context(stranger)):
            assert not await asks_versions(system, context, LISTENER)
        assert handshakes(system, "failed", LISTENER) == 2
        own = certificates.context(certificates.clients.client("bob"))
        streams = await connect(system, own, LISTENER)
        assert await login(streams, plain()) == 0
        await close(streams[1])


@on_uvloop
async def test_a_certificate_that_is_requested_may_be_missing_if_the_password_is_right(
    certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "strangers").client("eve")
    settings = certificates.mutual(**SASL) | {"ssl_client_auth": "requested"}
    async with running(alice(), **settings) as system:
        for context in (certificates.context(), certificates.context(certificates.clients.client("bob"))):
            streams = await connect(system, context, LISTENER)
            assert await login(streams, plain()) == 0
            await close(streams[1])
        assert not await asks_versions(system, certificates.context(stranger), LISTENER)


@on_uvloop
async def test_each_listener_names_its_clients_by_its_own_rule(certificates: Certificates) -> None:
    settings = certificates.mutual(
        **SASL
        | {
            "listeners": ",".join(
                f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "MUTUAL", LISTENER)
            ),
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
            "ssl_principal_mapping_rules": "SSL=RULE:^CN=(.*?),.*$/$1/U,MUTUAL=RULE:^CN=(.*?),.*$/of-$1/",
        }
    ) | {"ssl_client_auth": "required,SASL_SSL=none"}
    async with running(alice(), **settings) as system:
        bob = certificates.context(certificates.clients.client("bob"))
        opened = [await asyncio.open_connection("127.0.0.1", system.ports["PLAINTEXT"])]
        opened += [await connect(system, bob, listener) for listener in ("SSL", "MUTUAL")]
        opened.append(await connect(system, certificates.context(), LISTENER))
        assert await login(opened[-1], plain()) == 0
        await until(lambda: handshakes(system, "succeeded", "MUTUAL") == 1)
        assert {caller.listener: caller.principal for caller in callers(system)} == {
            "PLAINTEXT": "User:ANONYMOUS",
            "SSL": "User:BOB",
            "MUTUAL": "User:of-bob",
            LISTENER: f"User:{ALICE}",
        }
        for _, writer in opened:
            await close(writer)

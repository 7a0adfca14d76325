"""Listeners with TLS: what clients get, who is let in, and what those who are not let in cannot do to others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path
from struct import pack, unpack_from

import pytest
from door_harness import until
from door_sockets import (
    API_VERSIONS_0,
    System,
    close,
    framed,
    on_uvloop,
    produce_frame,
    read_answer,
    running,
)
from kafscale.frontdoor.listeners.connection_limits import UnauthenticatedConnections
from kafscale.frontdoor.listeners.tls_stream import AHEAD_BYTES_MAX, RECORD_BYTES
from kafscale.testkit.authority import Authority
from kafscale.wire.schema import produce
from tls_clients import Certificates, asks_versions, connect, handshakes, hello, is_of

INIT_PRODUCER_ID = framed(22, 0, 1, pack(">hi", -1, 0))
SIZES = (0, 1, 100, 16_383, 16_384, 16_385, 70_000, 3 << 20, 17, 1 << 20, 65_536, 9 << 20, 5)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def pipeline(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        reader, writer = await connect(system, certificates.context())
        sent = [bytes([number]) * size for number, size in enumerate(SIZES)]
        writer.write(b"".join(produce_frame(n, records) for n, records in enumerate(sent)))
        for number in range(len(SIZES)):
            correlation_id, body = await read_answer(reader)
            response = produce.decode_response(body[1:], 9)
            assert correlation_id == number
            assert response.responses[0].partition_responses[0].base_offset == number
        assert system.service.produced == sent
        assert handshakes(system, "succeeded") == 1
        await close(writer)
        await until(lambda: not system.door.gateway.connections)


async def test_requests_of_all_sizes_arrive_whole_and_in_order(certificates: Certificates) -> None:
    await pipeline(certificates)


def test_under_uvloop_they_do_too(certificates: Certificates) -> None:
    on_uvloop(pipeline)(certificates)


@on_uvloop
async def test_answers_of_all_sizes_arrive_whole_and_in_order(certificates: Certificates) -> None:
    """The service echoes a Fetch."""
    async with running(**certificates.settings()) as system:
        reader, writer = await connect(system, certificates.context())
        bodies = [fetch_body(number, size) for number, size in enumerate(SIZES)]
        writing = asyncio.ensure_future(write_all(writer, bodies))
        for number, body in enumerate(bodies):
            assert await read_answer(reader) == (number, body)
        await writing
        await close(writer)


def fetch_body(number: int, size: int) -> bytes:
    """A Fetch for nothing, which the front door sends on unchanged, and bytes after it."""
    nothing = bytes(21)[:size]
    return nothing + bytes([number + 1]) * (size - len(nothing))


async def write_all(writer: asyncio.StreamWriter, bodies: list[bytes]) -> None:
    for number, body in enumerate(bodies):
        writer.write(framed(1, 4, number, body))
        await writer.drain()


@on_uvloop
async def test_what_a_client_does_not_read_counts_and_goes_on_when_it_reads(
    certificates: Certificates,
) -> None:
    """Else answers would leave the memory's account when they are encrypted."""
    size, total = 7 << 20, 4  # more than the sockets of both sides hold
    async with running(**certificates.settings(frontdoor_unsent_bytes_max=8 << 20)) as system:
        reader, writer = await connect(system, certificates.context())
        transport = writer.transport
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        transport.pause_reading()  # type: ignore[attr-defined]
        writing = asyncio.ensure_future(write_all(writer, [fetch_body(n, size) for n in range(total)]))
        gateway = system.door.gateway
        await until(lambda: gateway.metrics.stalls.value == 0 and len(gateway.connections) == 1)
        (connection,) = gateway.connections
        unsent = connection.caller.unsent
        await until(lambda: unsent.waiting_bytes > 2 * AHEAD_BYTES_MAX)
        assert gateway._answers.used_bytes == unsent.waiting_bytes + unsent.reserved_bytes
        assert unsent.buffered_bytes > 0
        # Only a part is encrypted. The rest stays as the views that came from the service.
        assert connection._transport._socket.get_write_buffer_size() < AHEAD_BYTES_MAX + 2 * RECORD_BYTES  # type: ignore[attr-defined]
        transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(total):
            assert await read_answer(reader) == (number, fetch_body(number, size))
        await writing
        await until(lambda: gateway._answers.used_bytes == 0)
        await close(writer)


@on_uvloop
async def test_a_client_that_takes_nothing_is_closed(certificates: Certificates) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafscale.frontdoor.memory.STUCK_MS", 500)
        async with running(**certificates.settings()) as system:
            _, writer = await connect(system, certificates.context())
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(framed(1, 4, 0, bytes(30 << 20)))
            await until(lambda: system.door.gateway.metrics.hung_up.labels("no_reader").value == 1)
            await until(lambda: not system.door.gateway.connections)
            writer.transport.abort()


@on_uvloop
async def test_the_name_of_a_certificate_is_the_principal(certificates: Certificates) -> None:
    async with running(**certificates.mutual()) as system:
        alice = certificates.context(certificates.clients.client("alice"))
        _, writer = await connect(system, alice)
        writer.write(INIT_PRODUCER_ID)
        await until(lambda: len(system.service.held) == 1)
        assert is_of(system.service.held[0].meta.principal, "alice")
        await close(writer)
        await until(lambda: system.service.cancelled == 1)


@on_uvloop
async def test_mapping_rules_shorten_the_name_and_refuse_who_matches_none(certificates: Certificates) -> None:
    rules = "RULE:^CN=(A.*?),.*$/$1/L"
    async with running(**certificates.mutual(ssl_principal_mapping_rules=rules)) as system:
        _, writer = await connect(system, certificates.context(certificates.clients.client("Alice")))
        writer.write(INIT_PRODUCER_ID)
        await until(lambda: len(system.service.held) == 1)
        assert system.service.held[0].meta.principal == "User:alice"
        await close(writer)
        bob = certificates.context(certificates.clients.client("bob"))
        assert not await asks_versions(system, bob)
        assert handshakes(system, "no_principal") == 1


@on_uvloop
async def test_a_certificate_that_is_only_requested_may_be_missing_but_not_wrong(
    certificates: Certificates, tmp_path: Path
) -> None:
    settings = certificates.mutual() | {"ssl_client_auth": "requested"}
    stranger = Authority(tmp_path / "strangers").client("eve")
    async with running(**settings) as system:
        _, writer = await connect(system, certificates.context())
        writer.write(INIT_PRODUCER_ID)
        await until(lambda: len(system.service.held) == 1)
        assert system.service.held[0].meta.principal == "User:ANONYMOUS"
        await close(writer)
        assert await asks_versions(system, certificates.context(certificates.clients.client("alice")))
        assert not await asks_versions(system, certificates.context(stranger))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_a_certificate_of_the_ca_that_is_valid_now_is_let_in(
    certificates: Certificates, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    strangers = Authority(tmp_path / "strangers")
    cases = {
        certificates.clients.client("alice"): True,
        None: False,
        certificates.clients.client("old", expired=True): False,
        strangers.client("eve"): False,
    }

    async def run() -> None:
        async with running(**certificates.mutual()) as system:
            for files, expected in cases.items():
                context = certificates.context(files)
                context.minimum_version = context.maximum_version = version
                assert await asks_versions(system, context) is expected, files
            assert handshakes(system, "failed") == 3
            assert not system.service.held
            await until(lambda: not system.door.gateway.connections)

    on_uvloop(run)()


@on_uvloop
async def test_old_versions_and_weak_suites_are_refused(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            old = certificates.context()
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.warns(DeprecationWarning, match="TLSv1"):
                old.minimum_version = old.maximum_version = version
            assert hello(old), "the client itself would speak it"
            assert not await asks_versions(system, old)
        weak = certificates.context()
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("AES256-SHA256:AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256")
        assert not await asks_versions(system, weak)
        assert handshakes(system, "failed") == 3


@on_uvloop
async def test_a_listener_may_choose_versions_and_suites(certificates: Certificates) -> None:
    chosen = {
        "ssl_enabled_protocols": "TLSv1.2",
        "ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    }
    async with running(**certificates.settings(**chosen)) as system:
        _, writer = await connect(system, certificates.context())
        session: ssl.SSLObject = writer.get_extra_info("ssl_object")
        assert session.version() == "TLSv1.2"
        assert (session.cipher() or ("",))[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
        await close(writer)
        newest = certificates.context()
        newest.minimum_version = ssl.TLSVersion.TLSv1_3
        assert not await asks_versions(system, newest)


@pytest.mark.parametrize("data", [API_VERSIONS_0, b"GET / HTTP/1.1\r\n\r\n"])
def test_bytes_that_are_not_tls_end_the_connection_at_once(certificates: Certificates, data: bytes) -> None:
    async def run() -> None:
        async with running(**certificates.settings()) as system:
            reader, writer = await system.connect()
            writer.write(data)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            assert handshakes(system, "not_tls") == 1
            await close(writer)
            assert await asks_versions(system, certificates.context())

    on_uvloop(run)()


@on_uvloop
async def test_silent_connections_end_in_time_and_are_no_handshakes(certificates: Certificates) -> None:
    async with running(**certificates.settings(authentication_timeout_ms=1_000)) as system:
        silent, writer = await system.connect()
        stopped, other = await system.connect()
        other.write(hello(certificates.context())[:100])
        async with asyncio.timeout(10):
            assert await silent.read() == b""
            assert await stopped.read() == b""
        assert handshakes(system, "unfinished") == 1
        assert system.door.gateway.metrics.hung_up.labels("authentication_timeout").value == 2
        await close(writer)
        await close(other)


@on_uvloop
async def test_clients_that_stop_in_the_handshake_hold_up_nobody(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        flight = hello(certificates.context())
        stopped = [await system.connect() for _ in range(200)]
        for _, writer in stopped:
            writer.write(flight)
        honest = [asks_versions(system, certificates.context()) for _ in range(20)]
        assert all(await asyncio.gather(*honest))
        assert len(system.door.gateway.connections) == len(stopped)
        for _, writer in stopped:
            writer.transport.abort()
        await until(lambda: handshakes(system, "unfinished") == len(stopped))


@on_uvloop
async def test_beyond_their_bound_the_oldest_silent_connection_goes(certificates: Certificates) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            UnauthenticatedConnections.__init__,
            "__kwdefaults__",
            {"connections_max": 40},  # half for an address
        )
        async with running(**certificates.settings()) as system:
            served_reader, served = await connect(system, certificates.context())
            served.write(API_VERSIONS_0)
            await read_answer(served_reader)
            silent = [await system.connect() for _ in range(60)]
            await until(lambda: system.door.gateway.metrics.hung_up.labels("displaced").value == 40)
            async with asyncio.timeout(10):
                assert await silent[0][0].read() == b""
            assert await asks_versions(system, certificates.context())
            served.write(API_VERSIONS_0)
            assert (await read_answer(served_reader))[0] == 9, "who has asked is not one of them"
            for _, writer in (*silent, (None, served)):
                writer.transport.abort()
            await until(lambda: not system.door.gateway.connections)


@on_uvloop
async def test_no_request_is_taken_before_the_handshake_is_done(certificates: Certificates) -> None:
    """With TLS 1.3 a client may send before the server has seen its certificate."""
    async with running(**certificates.mutual()) as system:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            _, writer = await connect(system, certificates.context())
            writer.write(INIT_PRODUCER_ID)
            await close(writer)
        await until(lambda: handshakes(system, "failed") == 1)
        await until(lambda: not system.door.gateway.connections)
        assert not system.service.held


@on_uvloop
async def test_answers_are_sent_before_the_connection_ends_and_so_is_the_end(
    certificates: Certificates,
) -> None:
    """A client that does not get TLS's own end cannot tell it from an attack."""
    async with running(**certificates.settings()) as system:
        asked, go_on = threading.Event(), threading.Event()
        reading = asyncio.ensure_future(
            asyncio.to_thread(ask_and_wait, system, certificates.context(), asked, go_on)
        )
        await until(asked.is_set)
        await until(lambda: system.door.gateway.metrics.by_key[1].requests.value == 1)
        (connection,) = system.door.gateway.connections
        connection.drain()
        go_on.set()
        assert await reading == [pack(">i", 3) + bytes(5 << 20)]


def ask_and_wait(
    system: System, context: ssl.SSLContext, asked: threading.Event, go_on: threading.Event
) -> list[bytes]:
    """A request for a large answer. All answers until the server's end of TLS; without it, SSLEOFError."""
    with (
        socket.create_connection(("127.0.0.1", system.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(framed(1, 4, 3, bytes(5 << 20)))
        asked.set()
        go_on.wait(10)
        received = bytearray()
        while data := client.recv(1 << 16):
            received += data
        return answers_in(received)


def answers_in(data: bytes | bytearray) -> list[bytes]:
    found = []
    while data:
        (size,) = unpack_from(">i", data)
        found.append(bytes(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


@on_uvloop
async def test_a_half_that_a_client_closes_still_gets_its_answers(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        answers = await asyncio.to_thread(ask_and_end, system, certificates.context())
        assert [answer[:4] for answer in answers] == [pack(">i", 9)] * 3


def ask_and_end(system: System, context: ssl.SSLContext) -> list[bytes]:
    """Three requests and the client's end of TLS in one write; all answers until the server's end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", system.port), timeout=10) as raw:
        while not shaken(client):
            raw.sendall(outgoing.read())
            incoming.write(raw.recv(1 << 16))
        client.write(API_VERSIONS_0 * 3)
        with contextlib.suppress(ssl.SSLError):
            client.unwrap()
        raw.sendall(outgoing.read())
        received = bytearray()
        while data := raw.recv(1 << 16):
            incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                while more := client.read(1 << 16):
                    received += more
        return answers_in(received)


def shaken(client: ssl.SSLObject) -> bool:
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@on_uvloop
async def test_a_client_that_leaves_takes_its_requests_back(certificates: Certificates) -> None:
    async with running(**certificates.settings()) as system:
        _, writer = await connect(system, certificates.context())
        for number in range(3):
            writer.write(framed(22, 0, number, pack(">hi", -1, 0)))
        await until(lambda: len(system.service.held) == 3)
        await close(writer)
        await until(lambda: system.service.cancelled == 3)

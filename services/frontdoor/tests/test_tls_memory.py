"""Why listeners have a TLS transport of their own: what a client does not read is not held a second time.

uvloop's own TLS encrypts a whole answer at once, and says that nothing waits. A client that asks for much and reads
nothing would then cost the front door the whole answer, outside every budget. Both transports send the same views of
one megabyte here, so what they allocate is what they encrypt ahead.
"""

from __future__ import annotations

import asyncio
import ctypes
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from door_harness import until
from door_sockets import on_uvloop
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.listeners.handshake_turns import HandshakeTurns
from kafscale.frontdoor.listeners.tls_contexts import ListenerTls, open_all
from kafscale.frontdoor.listeners.tls_stream import AHEAD_BYTES_MAX, SOCKET_BYTES_MAX, TlsStream
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from tls_clients import HOST, Certificates

PIECE = bytes(1 << 20)
PIECES = 64
ANSWER_BYTES = PIECES * len(PIECE)
KEPT_BYTES_MAX = 3 << 19
"""Of both ends: their TLS sessions, OpenSSL's buffers, and what the client's loop reads into."""
AHEAD = 2 * (AHEAD_BYTES_MAX + SOCKET_BYTES_MAX) + (4 << 20)
"""Encrypted, and copied to the socket; and what OpenSSL, the loop and the client's side take."""


class Allocated(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocated_bytes() -> int:
    """What malloc has given to this process, OpenSSL's and the event loop's memory included."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Allocated
    found = mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


class Answering(asyncio.BufferedProtocol):
    """A connection with one large answer, that waits for its client."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answered = self.lost = False
        self._scratch = memoryview(bytearray(1 << 14))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """The client's request: any bytes."""
        assert self.transport is not None
        self.transport.writelines([memoryview(PIECE)] * PIECES)
        self.answered = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def established(self, principal: str) -> None:
        pass

    def close(self, kind: str, label: str, *, flush: bool, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@asynccontextmanager
async def asked(
    certificates: Certificates,
    factory: Callable[[], Any],
    tls: ssl.SSLContext | None = None,
    *,
    reads: bool = False,
) -> AsyncIterator[asyncio.StreamReader]:
    """A client that has asked for the answer, and reads it or not."""
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=certificates.context(), server_hostname=HOST
    )
    if not reads:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"?")
    try:
        yield reader
    finally:
        writer.transport.abort()
        server.close()


def listener(certificates: Certificates) -> ListenerTls:
    (found,) = open_all(FrontdoorSettings(**certificates.settings()).securities().values()).values()
    return found


def stream_of(answering: Answering, certificates: Certificates) -> TlsStream:
    return TlsStream(
        cast(ClientConnection, answering),
        listener(certificates),
        turns=HandshakeTurns(SystemClock()),
        outcomes=Metrics("frontdoor").counters("tls_handshakes_total"),
        scratch=memoryview(bytearray(1 << 18)),
    )


@on_uvloop
async def test_an_answer_that_a_client_does_not_read_is_not_held_twice(certificates: Certificates) -> None:
    answering = Answering()
    stream = stream_of(answering, certificates)
    before = allocated_bytes()
    async with asked(certificates, lambda: stream):
        await until(lambda: answering.answered)
        assert allocated_bytes() - before < AHEAD
        assert stream.get_write_buffer_size() > ANSWER_BYTES / 2, (
            "what the kernel has not taken counts in the budget"
        )
    await until(lambda: answering.lost)
    assert stream.get_write_buffer_size() == 0


@on_uvloop
async def test_a_client_that_has_taken_a_large_answer_costs_little_afterwards(
    certificates: Certificates,
) -> None:
    answering = Answering()
    stream = stream_of(answering, certificates)
    before = allocated_bytes()
    async with asked(certificates, lambda: stream, reads=True) as reader:
        await until(lambda: answering.answered)
        for _ in range(PIECES):
            await reader.readexactly(len(PIECE))
        await until(lambda: stream.get_write_buffer_size() == 0)
        assert allocated_bytes() - before < KEPT_BYTES_MAX


@on_uvloop
async def test_uvloops_own_tls_holds_it_twice(certificates: Certificates) -> None:
    """If this fails, uvloop has changed, and the front door may no longer need a transport of its own."""
    answering = Answering()
    before = allocated_bytes()
    async with asked(certificates, lambda: answering, listener(certificates).context):
        await until(lambda: answering.answered)
        assert allocated_bytes() - before > ANSWER_BYTES / 2
        assert answering.transport is not None
        assert answering.transport.get_write_buffer_size() < ANSWER_BYTES / 2, "and nobody could count it"
    await until(lambda: answering.lost)

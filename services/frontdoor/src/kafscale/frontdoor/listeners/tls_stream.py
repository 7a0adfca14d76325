"""TLS between a socket and a client's connection: the socket's protocol, and the connection's transport.

Laws: the connection exists for the limits, the sweep and the drain from the moment the socket does, but it receives no
byte before the handshake has succeeded and the client has a principal. Everything that waits for the client counts in
`get_write_buffer_size`, encrypted or not: at most `AHEAD_BYTES_MAX` is encrypted ahead of what the socket has taken,
and the rest stays as the views that it came in. Small buffers are joined into full records; large ones are encrypted
from where they are. A close sends what was written before it, and TLS's own end.

uvloop's own TLS is not used, because it encrypts a whole answer at once and shows no longer what the socket has not
taken, so the memory of answers could not be bounded. It also has no place between the first byte and the handshake.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, cast

from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.listeners.certificate_names import CertificateUnreadable
from kafscale.frontdoor.listeners.handshake_turns import HandshakeTurns
from kafscale.frontdoor.listeners.tls_contexts import ListenerTls
from kafscale.runtime.metrics import Family, Tally
from kafscale.storage.system import wall_s
from kafscale.wire.buffers import Buffer

RECORD_BYTES: Final = 16 << 10
STEP_BYTES: Final = 64 << 10
"""Encrypted at a time. OpenSSL's buffer keeps the size that it once had, 1.4 MiB after a megabyte, until its connection
ends, and no budget counts that."""
AHEAD_BYTES_MAX: Final = 1 << 20
SOCKET_BYTES_MAX: Final = 512 << 10
HANDSHAKE_RECORD: Final = 0x16


class Stage(Enum):
    SILENT = auto()  # no byte of the client has arrived
    QUEUED = auto()  # the client has begun, and waits for a place
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSED = auto()  # refused, broken or lost


class TlsStream(asyncio.Transport, asyncio.BufferedProtocol):
    def __init__(
        self,
        connection: ClientConnection,
        tls: ListenerTls,
        *,
        turns: HandshakeTurns,
        outcomes: Family[Tally],
        scratch: memoryview,
    ) -> None:
        """`scratch`: shared by all connections of the loop, nothing stays in it."""
        super().__init__()
        self._connection = connection
        self._tls = tls
        self._turns = turns
        self._outcomes = outcomes
        self._scratch = scratch
        self._stage = Stage.SILENT
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None
        self._socket: asyncio.Transport | None = None
        self._listening = True  # the socket is read
        self._paused = False  # by the connection
        self._notified = self._ended = False  # the client sends no more: it said so; the connection knows
        self._backlog: deque[memoryview] = deque()  # not encrypted yet
        self._backlog_bytes = 0
        self._writing_paused = False
        self._closing = False

    # ---- the socket's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=SOCKET_BYTES_MAX)
        self._connection.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        # An unauthenticated connection holds what it sent before its handshake begins, so it may send one record.
        return self._scratch if self._stage is Stage.OPEN else self._scratch[:RECORD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._in.write(self._scratch[:nbytes])
        if self._stage is Stage.OPEN:
            self._read()
        elif self._stage is Stage.HANDSHAKE:
            self._shake()
        elif self._stage is Stage.SILENT:
            self._first_bytes(self._scratch[0])

    def eof_received(self) -> bool:
        return self._stage is Stage.OPEN and self._end()

    def pause_writing(self) -> None:
        """`_encrypt` looks at the socket's buffer itself."""

    def resume_writing(self) -> None:
        self._encrypt()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stage in (Stage.QUEUED, Stage.HANDSHAKE):
            self._count("unfinished")
        self._stage = Stage.CLOSED
        self._turns.leave(self)
        self._socket = None
        self._backlog.clear()
        self._backlog_bytes = 0
        self._connection.connection_lost(exc)

    # ---- the handshake

    def _first_bytes(self, first: int) -> None:
        if first != HANDSHAKE_RECORD:
            self._refuse("not_tls", "the client's first bytes are not TLS")
            return
        self._stage = Stage.QUEUED
        if self._turns.ask(self):
            self.begin()
        else:
            self._listen(False)

    def begin(self) -> None:
        """It has a place now."""
        if self._closing or self._socket is None:
            return
        self._stage = Stage.HANDSHAKE
        self._listen(True)
        self._ssl = self._tls.context.wrap_bio(self._in, self._out, server_side=True)
        self._shake()

    def _shake(self) -> None:
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()  # the alert that tells the client why
            self._refuse("failed", _reason(error))
        else:
            self._send()
            self._turns.leave(self)
            self._identify(self._ssl)

    def _identify(self, established: ssl.SSLObject) -> None:
        """The handshake is done: which principal is the client?"""
        certificate = established.getpeercert()
        # OpenSSL looks at the dates in a full handshake only.
        if certificate and ssl.cert_time_to_seconds(str(certificate["notAfter"])) < wall_s():
            self._refuse("failed", "the certificate expired after the session began")
            return
        try:
            principal = self._tls.settings.principal(established.getpeercert(binary_form=True))
        except CertificateUnreadable as error:
            self._refuse("failed", str(error))
            return
        if principal is None:
            self._refuse("no_principal", "no mapping rule matches the name of the client's certificate")
            return
        self._stage = Stage.OPEN
        self._count("succeeded")
        self._connection.established(principal)
        self._listen(not self._paused)
        self._read()

    def _refuse(self, outcome: str, reason: str) -> None:
        self._stage = Stage.CLOSED
        self._turns.leave(self)
        self._count(outcome)
        self._connection.close("TLS handshake failed", "tls_handshake", flush=False, reason=reason)

    def _count(self, outcome: str) -> None:
        self._outcomes.labels(self._tls.name, outcome).inc()

    # ---- from the client

    def pause_reading(self) -> None:
        self._paused = True
        if self._stage is Stage.OPEN:
            self._listen(False)

    def resume_reading(self) -> None:
        self._paused = False
        if self._stage is not Stage.OPEN:
            return
        if self._has_input:
            asyncio.get_running_loop().call_soon(self._resume)  # the connection is in the middle of something
        else:
            self._listen(True)

    def _resume(self) -> None:
        self._read()
        self._listen(not self._paused)

    def _listen(self, yes: bool) -> None:
        """Whether the socket is read."""
        if self._socket is None or self._socket.is_closing() or yes is self._listening:
            return
        self._listening = yes
        if yes:
            self._socket.resume_reading()
        else:
            self._socket.pause_reading()

    def _read(self) -> None:
        """Gives the connection what has arrived, while it wants it."""
        while self._has_input and not (self._paused or self._closing or self._notified):
            count = self._decrypt(self._connection.get_buffer(-1))
            if not count:
                break
            self._connection.buffer_updated(count)
        self._send()  # what TLS answers by itself, as a key update
        if self._notified and not self._end():
            self.close()

    @property
    def _has_input(self) -> bool:
        return self._ssl is not None and bool(self._in.pending or self._ssl.pending())

    def _decrypt(self, buffer: memoryview) -> int:
        """Fills the buffer while whole records are there. A read of OpenSSL returns one record at most."""
        filled = 0
        while filled < len(buffer) and self._has_input:
            count = self._decrypt_record(buffer[filled:])
            if not count:
                break
            filled += count
        return filled

    def _decrypt_record(self, room: memoryview) -> int:
        """0: there is no whole record, or the client has ended."""
        assert self._ssl is not None
        try:
            count: int = self._ssl.read(len(room), room)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            self._broken(error)
            return 0
        self._notified = count == 0
        return count

    def _end(self) -> bool:
        """The client sends no more. Whether it may still receive answers."""
        if self._ended:
            return not self._closing
        self._ended = True
        return self._connection.eof_received()

    def _broken(self, error: ssl.SSLError) -> None:
        self._send()
        self._stage = Stage.CLOSED
        self._connection.close("TLS broken", "tls_broken", flush=False, reason=_reason(error))

    # ---- to the client

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in in_records(list_of_data):
            self._backlog.append(memoryview(data))
            self._backlog_bytes += len(data)
        self._encrypt()

    def _encrypt(self) -> None:
        """Encrypts as much as the socket may have. The connection may write while nothing is left."""
        socket = self._socket
        if socket is None or self._stage is not Stage.OPEN:
            return
        try:
            while self._backlog and (room := AHEAD_BYTES_MAX - socket.get_write_buffer_size()) > 0:
                self._encrypt_some(min(room, STEP_BYTES))
                self._send()
        except ssl.SSLError as error:
            self._broken(error)
            return
        full = bool(self._backlog)
        if self._closing:
            if not full:
                self._finish()
        elif full is not self._writing_paused:
            self._writing_paused = full
            if full:
                self._connection.pause_writing()
            else:
                self._connection.resume_writing()

    def _encrypt_some(self, room: int) -> None:
        assert self._ssl is not None
        while self._backlog and room > 0:
            data = self._backlog[0]
            count = self._ssl.write(data[:RECORD_BYTES])
            room -= count
            self._backlog_bytes -= count
            if count == len(data):
                self._backlog.popleft()
            else:
                self._backlog[0] = data[count:]

    def _send(self) -> None:
        if self._out.pending and self._socket is not None and not self._socket.is_closing():
            self._socket.write(self._out.read())

    def get_write_buffer_size(self) -> int:
        waiting = 0 if self._socket is None else self._socket.get_write_buffer_size()
        return self._backlog_bytes + self._out.pending + waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The connection is paused while something is not encrypted: after AHEAD_BYTES_MAX."""

    # ---- the end

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing or self._socket is None

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._backlog or self._stage is not Stage.OPEN:
                self._finish()

    def _finish(self) -> None:
        if self._ssl is not None and self._stage is Stage.OPEN:
            with contextlib.suppress(
                ssl.SSLError
            ):  # the client's own end has not come, and is not waited for
                self._ssl.unwrap()
            self._send()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        self._closing = True
        if self._socket is not None:
            self._socket.abort()


def in_records(buffers: Iterable[Buffer]) -> list[Buffer]:
    """The same bytes: small neighbours are joined until they fill a record, large ones stay as they are."""
    found: list[Buffer] = []
    small: list[Buffer] = []
    small_bytes = 0
    for one in buffers:
        if len(one) < RECORD_BYTES:
            small.append(one)
            small_bytes += len(one)
        if small and (len(one) >= RECORD_BYTES or small_bytes >= RECORD_BYTES):
            found.append(b"".join(small))
            small, small_bytes = [], 0
        if len(one) >= RECORD_BYTES:
            found.append(one)
    if small:
        found.append(b"".join(small))
    return found


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's own words, and for a certificate what is wrong with it."""
    detail = getattr(error, "verify_message", "")
    words = (error.reason or str(error)).replace("_", " ").lower()
    return f"{words}: {detail}" if detail else words

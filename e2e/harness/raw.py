"""The raw Kafka client of tests and benchmarks, for requests that no client library sends.

`Raw` blocks and sends any bytes, right or wrong. `Wire` is the same for asyncio: hundreds of them fit one process.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Any, Self

from kafscale.wire.buffers import Buffer
from kafscale.wire.headers import decode_response_header, encode_request_header

ANSWER_TIMEOUT_S = 30.0


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def body_of(frame: bytes, key: int, version: int, correlation_id: int) -> bytes:
    """The response's body, after its header, which must be the answer to that request."""
    found, body_at = decode_response_header(frame, key, version)
    assert found == correlation_id
    return frame[body_at:]


class Closed(Exception):
    """The server closed the connection instead of answering."""


@dataclass(slots=True)
class Raw:
    socket: socket.socket
    correlation_id: int = 0

    @classmethod
    def to(cls, bootstrap: str) -> Self:
        host, port = bootstrap.rsplit(":", 1)
        return cls(socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are. A server that closed already shows at the next read."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def frame(self, payload: bytes) -> None:
        self.send(framed(payload))

    def request(self, key: int, version: int, body: Sequence[Buffer], client_id: str | None = "raw") -> int:
        """Sends a request with a proper header; its correlation id."""
        self.correlation_id += 1
        self.frame(encode_request_header(key, version, self.correlation_id, client_id) + b"".join(body))
        return self.correlation_id

    def answer(self) -> bytes:
        """The next frame without its length. Raises Closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def answer_to(self, key: int, version: int) -> bytes:
        """The body of the next frame, which must answer the last request."""
        return body_of(self.answer(), key, version, self.correlation_id)

    def ask(self, key: int, version: int, body: Sequence[Buffer]) -> bytes:
        self.request(key, version, body)
        return self.answer_to(key, version)

    def is_closed(self) -> bool:
        """Waits for the server to close without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, for_s: float) -> bool:
        """True when the server neither answers nor closes for a while."""
        self.socket.settimeout(for_s)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(ANSWER_TIMEOUT_S)
        return False

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed
            parts += part
        return bytes(parts)


@dataclass(slots=True)
class Wire:
    """One connection. Requests may overlap; answers come in their order. A lost one raises OSError or EOFError."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client_id: str
    sent: int = 0
    answered: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def open(cls, bootstrap: str, client_id: str = "raw") -> Self:
        host, port = random.choice(bootstrap.split(",")).rsplit(":", 1)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return cls(*await asyncio.open_connection(host, int(port)), client_id)

    async def ask(self, api: ModuleType, version: int, message: object) -> Any:
        """The decoded response to a request of an API: a module of `kafscale.wire.schema`."""
        answer = await self.exchange(api.API_KEY, version, b"".join(api.encode_request(message, version)))
        return api.decode_response(answer, version)

    async def exchange(self, key: int, version: int, body: bytes) -> bytes:
        """The body of the response to a request whose body is encoded already."""
        self.sent += 1
        self.writer.write(framed(encode_request_header(key, version, self.sent, self.client_id) + body))
        async with self._turn:  # fair: turns are taken in the order of requests
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
            self.answered += 1
            return body_of(frame, key, version, self.answered)

    def close(self) -> None:
        self.writer.close()

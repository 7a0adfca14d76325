"""A Kafka connection of bare bytes: what no client library would send can be sent with it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafscale.wire.buffers import Buffer
from kafscale.wire.headers import decode_response_header, encode_request_header

ANSWER_TIMEOUT_S = 30.0


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
        self.send(struct.pack(">i", len(payload)) + payload)

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
        frame = self.answer()
        correlation_id, body_at = decode_response_header(frame, key, version)
        assert correlation_id == self.correlation_id
        return frame[body_at:]

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

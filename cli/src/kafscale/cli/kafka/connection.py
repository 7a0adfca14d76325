"""One Kafka connection: requests one at a time, each with a deadline.

The versions asked are the caller's; they are versions that every KafScale serves.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Protocol, Self, TypeVar

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.headers import decode_response_header, encode_request_header

CLIENT_ID: Final = "kafscale-cli"
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
_HEADER_BYTES_MIN: Final = 4  # the correlation id

Q = TypeVar("Q", contravariant=True)
A = TypeVar("A", covariant=True)


class Api(Protocol[Q, A]):
    """A module of `kafscale.wire.schema`: requests of type Q are answered by an A."""

    @property
    def API_KEY(self) -> int: ...

    def encode_request(self, msg: Q, version: int) -> list[Buffer]: ...

    def decode_response(self, buf: Buffer, version: int) -> A: ...


class BadAnswer(Exception):
    """What listens there does not answer as a Kafka broker does."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Raises OSError or TimeoutError."""
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return cls(*await asyncio.open_connection(host, port))

    async def ask(
        self, api: Api[Q, A], request: Q, version: int, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> A:
        """Raises OSError, EOFError, TimeoutError or BadAnswer; the connection is of no use after any of them."""
        self._correlation_id += 1
        header = encode_request_header(api.API_KEY, version, self._correlation_id, CLIENT_ID)
        body = b"".join(api.encode_request(request, version))
        async with asyncio.timeout(timeout_s):
            self._writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
            await self._writer.drain()
            frame = await self._frame()
        try:
            correlation_id, body_at = decode_response_header(frame, api.API_KEY, version)
            if correlation_id != self._correlation_id:
                raise BadAnswer(f"an answer to request {correlation_id} instead of {self._correlation_id}")
            return api.decode_response(memoryview(frame)[body_at:], version)
        except WireError as broken:
            raise BadAnswer(str(broken)) from broken

    async def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        if not _HEADER_BYTES_MIN <= size <= FRAME_BYTES_MAX:
            raise BadAnswer(f"a frame of {size} bytes")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()

"""One Kafka request on a separate connection, with the generated codec.

`kafscale up` waits for its front door with it: the import of librdkafka takes longer than the answer. `groups list`
sends ListGroups: AdminClient gives neither the protocol type of a group nor the states of KIP-848. `by_hand.py` has the
others.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Protocol, TypeVar

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.headers import decode_response_header, encode_request_header
from kafscale.wire.schema import metadata

CLIENT_ID: Final = "kafscale-cli"
ANSWER_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.1
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
METADATA_VERSION: Final = 9
_HEADER_BYTES_MIN: Final = 4  # the correlation id

Q = TypeVar("Q", contravariant=True)
A = TypeVar("A", covariant=True)


class Api(Protocol[Q, A]):
    """A module of `kafscale.wire.schema`: requests of type Q are answered by an A."""

    @property
    def API_KEY(self) -> int: ...

    def encode_request(self, msg: Q, version: int) -> list[Buffer]: ...

    def decode_response(self, buf: Buffer, version: int) -> A: ...


class BadAnswer(OSError):
    """The server does not answer as a Kafka broker does."""


async def request(
    address: tuple[str, int], api: Api[Q, A], message: Q, version: int, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> A:
    """The answer. Raises OSError, EOFError or TimeoutError."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(*address)
        try:
            body = encode_request_header(api.API_KEY, version, 1, CLIENT_ID)
            body += b"".join(api.encode_request(message, version))
            writer.write(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not _HEADER_BYTES_MIN <= size <= FRAME_BYTES_MAX:
                raise BadAnswer(f"a frame of {size} bytes")
            frame = await reader.readexactly(size)
        finally:
            writer.close()
    try:
        _, body_at = decode_response_header(frame, api.API_KEY, version)
        return api.decode_response(memoryview(frame)[body_at:], version)
    except WireError as broken:
        raise BadAnswer(str(broken)) from broken


async def request_metadata(host: str, port: int) -> metadata.MetadataResponse:
    """Metadata of the brokers, without topics. Raises OSError, EOFError or TimeoutError."""
    return await request((host, port), metadata, metadata.MetadataRequest(topics=[]), METADATA_VERSION)


async def wait_for_brokers(host: str, port: int) -> None:
    """Waits until Metadata lists a broker. The caller sets the deadline."""
    while True:
        try:
            if (await request_metadata(host, port)).brokers:
                return
        except (OSError, EOFError, TimeoutError):
            pass  # not up yet
        await asyncio.sleep(RETRY_S)

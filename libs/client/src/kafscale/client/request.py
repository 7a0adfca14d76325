"""One Kafka request on a separate connection, with the generated codec.

`kafscale up` waits for its front door with it: the import of librdkafka takes longer than the answer.
`admin_client.asked` sends the requests that AdminClient does not have, or whose answers it shortens. They encrypt and
log in by --command-config, as librdkafka does.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

from kafscale.client.login import LoginFailed, bearer, tokens_of
from kafscale.client.security import OAUTH, OPEN, ClientSecurity, PasswordLogin
from kafscale.client.tokens import TokenSource, TokenTrouble, fetch_token
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.headers import decode_response_header, encode_request_header
from kafscale.wire.schema import metadata, sasl_authenticate, sasl_handshake

CLIENT_ID: Final = "kafscale-cli"
ANSWER_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.1
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
METADATA_VERSION: Final = 9
HANDSHAKE_VERSION: Final = 1  # 1: tokens travel in SaslAuthenticate
AUTHENTICATE_VERSION: Final = 0
NONCE_BYTES: Final = 24
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
    address: tuple[str, int],
    api: Api[Q, A],
    message: Q,
    version: int,
    *,
    security: ClientSecurity = OPEN,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> A:
    """The answer. Raises OSError, EOFError or TimeoutError."""
    async with asyncio.timeout(timeout_s), connected(address, security) as connection:
        return await connection.ask(api, message, version)


@asynccontextmanager
async def connected(address: tuple[str, int], security: ClientSecurity = OPEN) -> AsyncIterator[Connection]:
    """A connection that has logged in. Raises OSError or EOFError."""
    reader, writer = await asyncio.open_connection(*address, ssl=security.context())
    try:
        connection = Connection(reader, writer)
        if security.login is not None:
            await _log_in(connection, security.login)
        yield connection
    finally:
        writer.close()


class Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    async def ask(self, api: Api[Q, A], message: Q, version: int) -> A:
        self._correlation_id += 1
        body = encode_request_header(api.API_KEY, version, self._correlation_id, CLIENT_ID)
        body += b"".join(api.encode_request(message, version))
        frame = struct.pack(">i", len(body)) + body
        self._writer.write(frame)
        answer = await self._read()
        try:
            _, body_at = decode_response_header(answer, api.API_KEY, version)
            return api.decode_response(memoryview(answer)[body_at:], version)
        except WireError as broken:
            raise BadAnswer(str(broken)) from broken

    async def _read(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        if not _HEADER_BYTES_MIN <= size <= FRAME_BYTES_MAX:
            raise BadAnswer(f"a frame of {size} bytes")
        return await self._reader.readexactly(size)


async def _log_in(connection: Connection, login: PasswordLogin | TokenSource) -> None:
    """Raises LoginFailed, and what `ask` raises."""
    if isinstance(login, PasswordLogin):
        mechanism, tokens = login.mechanism, tokens_of(login, secrets.token_urlsafe(NONCE_BYTES))
    else:
        try:
            token, _ = await asyncio.to_thread(fetch_token, login)
        except TokenTrouble as trouble:
            raise LoginFailed(str(trouble)) from trouble
        mechanism, tokens = OAUTH, bearer(token)
    offer = sasl_handshake.SaslHandshakeRequest(mechanism=mechanism)
    offered = await connection.ask(sasl_handshake, offer, HANDSHAKE_VERSION)
    if offered.error_code != ErrorCode.NONE:
        raise LoginFailed(f"the server offers {', '.join(offered.mechanisms)}, not {mechanism}")
    sent = next(tokens)
    while True:
        step = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=sent)
        answer = await connection.ask(sasl_authenticate, step, AUTHENTICATE_VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise LoginFailed(answer.error_message or "the server refuses the login")
        try:
            sent = tokens.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


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

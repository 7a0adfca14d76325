"""The headers that precede every request and response body.

The client id stays a plain nullable string in every version, so that a server can read it from a request
whose version it does not know. A response's header is the correlation id and, when flexible, one tag count.
The four bytes of length before a header belong to the framing; only `answer_head` writes them. Tagged fields of a
header are skipped (KIP-482).
"""

from __future__ import annotations

from struct import Struct, error

import msgspec
from kafscale.wire.apis import FLEXIBLE_FROM, ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.varints import skip_tags

_FIXED = Struct(">hhi")
_CLIENT_ID_LENGTH = Struct(">h")
_CORRELATION_ID = Struct(">i")
_PLAIN_HEAD = Struct(">ii")
_TAGGED_HEAD = Struct(">iiB")
CLIENT_ID_BYTES_MAX = 32767
# Plain numbers: looking up a member of an enum takes longer than all the rest of a header.
_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The API and version of a request, its client, and the correlation id that the response must carry."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def request_header_version(key: int, version: int) -> int:
    """0 without a client id (ControlledShutdown v0 alone), 1 with it, 2 with tagged fields behind it."""
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version >= FLEXIBLE_FROM[key] else 1


def response_header_version(key: int, version: int) -> int:
    """1 with tagged fields. ApiVersions is always 0: its reader may not know which version was answered."""
    if key == _API_VERSIONS:
        return 0
    return 1 if version >= FLEXIBLE_FROM[key] else 0


def decode_request_header(buf: Buffer) -> tuple[RequestHeader, int]:
    """The header and the offset of the body; an API key that Kafka does not know is a WireError."""
    try:
        key, version, correlation_id = _FIXED.unpack_from(buf)
        if key not in FLEXIBLE_FROM:
            raise WireError("request header", f"unknown API key {key}", offset=0)
        header_version = request_header_version(key, version)
        if header_version == 0:
            return RequestHeader(key, version, correlation_id), 8
        (length,) = _CLIENT_ID_LENGTH.unpack_from(buf, 8)
        client_id, end = _client_id(buf, length)
        if header_version == 2:
            end = skip_tags(buf, end) if buf[end] else end + 1
    except (error, IndexError) as broken:
        raise WireError("request header", f"cut short ({broken})") from broken
    if end > len(buf):
        raise WireError("request header", "cut short", offset=len(buf))
    return RequestHeader(key, version, correlation_id, client_id), end


def _client_id(buf: Buffer, length: int) -> tuple[str | None, int]:
    """What is not UTF-8 is replaced, as in Kafka: a host name may be Latin-1. U+FFFD has 3 bytes, so such an id is cut
    to the length that any other one may have."""
    if length < 0:
        if length == -1:
            return None, 10
        raise WireError("request header", f"client id length {length}", offset=8)
    raw, end = buf[10 : 10 + length], 10 + length
    try:
        return str(raw, "utf-8"), end
    except UnicodeDecodeError:
        return str(raw, "utf-8", "replace")[: CLIENT_ID_BYTES_MAX // 3], end


def encode_request_header(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None = None,
) -> bytes:
    """The header of a request, as clients send it."""
    header_version = request_header_version(api_key, api_version)
    fixed = _FIXED.pack(api_key, api_version, correlation_id)
    if header_version == 0:
        return fixed
    text = b"" if client_id is None else client_id.encode()
    if len(text) > CLIENT_ID_BYTES_MAX:
        raise WireError("request header", f"client id of {len(text)} bytes")
    length = _CLIENT_ID_LENGTH.pack(-1 if client_id is None else len(text))
    if header_version == 1:
        return fixed + length + text
    return fixed + length + text + b"\x00"


def answer_head(size: int, correlation_id: int, *, tagged: bool) -> bytes:
    """The length and the header before a response body of `size` bytes."""
    if tagged:
        return _TAGGED_HEAD.pack(size + 5, correlation_id, 0)
    return _PLAIN_HEAD.pack(size + 4, correlation_id)


def decode_response_header(buf: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id and the offset of the body."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buf)
        end = skip_tags(buf, 4) if response_header_version(api_key, api_version) else 4
    except (error, IndexError) as broken:
        raise WireError("response header", f"cut short ({broken})") from broken
    if end > len(buf):
        raise WireError("response header", "cut short", offset=len(buf))
    return int(correlation_id), end

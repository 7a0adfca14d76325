"""Signed requests to one bucket over aiohttp. One call is one answer."""

import asyncio
import hashlib
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.port import Buffer
from kafscale.storage.objects.s3_session import Session
from kafscale.storage.objects.s3_signing import UNSIGNED, Signer, encoded_key, encoded_query
from yarl import URL

KEEPALIVE_S: Final = 12.0
_JOIN_BELOW: Final = 1 << 16  # a system call costs more than copying this much
_HASH_HERE_MAX: Final = 1 << 16  # longer bodies are hashed in a thread
_ADDED_BY_AIOHTTP: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of S3."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> tuple[str, str]:
        """Code and message of an error's XML; empty for HEAD, which has no body."""
        text = self.body.decode(errors="replace")
        code, message = _CODE.search(text), _MESSAGE.search(text)
        return code[1] if code else "", message[1] if message else ""


def chunks(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """A PUT's body in pieces worth a system call: large buffers as they are, runs of small ones joined."""
    small: list[Buffer] = []
    held = 0
    for part in filter(len, parts):
        if len(part) >= _JOIN_BELOW:
            if small:
                yield b"".join(small)
                small, held = [], 0
            yield part
            continue
        small.append(part)
        held += len(part)
        if held >= _JOIN_BELOW:
            yield b"".join(small)
            small, held = [], 0
    if held:
        yield b"".join(small)


class ScatterBody(Payload):
    """A body that aiohttp can send again, over a new connection."""

    _autoclose = True

    def __init__(self, parts: Sequence[Buffer]) -> None:
        super().__init__(parts)
        self._parts = parts
        self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for chunk in chunks(self._parts):
            await writer.write(chunk)


class ObjectRequests:
    """A pool of connections to one bucket."""

    def __init__(self, config: S3Config, session: Session) -> None:
        self._root = _bucket_url(config, session.endpoint)
        self._proxy = _proxy_of(self._root)
        self._signing = config.payload_signing
        self._credentials = session.credentials
        self._signer = Signer(config.region)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=config.connections_max,
                keepalive_timeout=KEEPALIVE_S,
                ssl=ssl.create_default_context(cafile=session.ca_bundle),
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED_BY_AIOHTTP,
            auto_decompress=False,
        )

    async def send(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        body: Sequence[Buffer] = (),
        query: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """One request and its whole answer; without a key it is the bucket's.

        Raises aiohttp's errors and those of the credentials, and knows no time limit.
        """
        place = f"{self._root}/{encoded_key(key)}" if key else self._root
        asked = encoded_query(query)
        url = URL(f"{place}?{asked}" if asked else place, encoded=True)
        signed = self._signer.sign(
            method,
            host=url.raw_authority,
            path=url.raw_path,
            query=asked,
            headers=headers,
            payload_hash=await self._payload_hash(body),
            credentials=await self._credentials(),
            now=datetime.now(UTC),
        )
        data = ScatterBody(body) if method in ("PUT", "POST") else None
        async with self._session.request(
            method, url, headers=signed, data=data, allow_redirects=False, proxy=self._proxy
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def _payload_hash(self, body: Sequence[Buffer]) -> str:
        if not self._signing:
            return UNSIGNED
        if sum(map(len, body)) <= _HASH_HERE_MAX:
            return _sha256(body)
        return await asyncio.to_thread(_sha256, body)

    async def close(self) -> None:
        await self._session.close()


def _proxy_of(url: str) -> str | None:
    """As HTTP_PROXY, HTTPS_PROXY and NO_PROXY say; aiohttp would ask them, and ~/.netrc, for every request."""
    address = URL(url)
    if address.host is None or proxy_bypass(address.host):
        return None
    return getproxies().get(address.scheme)


def _sha256(body: Sequence[Buffer]) -> str:
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return digest.hexdigest()


def _bucket_url(config: S3Config, endpoint: str) -> str:
    """Path-style URLs for custom endpoints; virtual-hosted on AWS, unless the bucket name contains a dot."""
    scheme, _, rest = endpoint.rstrip("/").partition("://")
    if config.endpoint is not None or "." in config.bucket:
        return f"{scheme}://{rest}/{config.bucket}"
    return f"{scheme}://{config.bucket}.{rest}"

"""Signed requests to one bucket over aiohttp: the endpoint and the credentials, the signature, the connections.

One call is one answer. Endpoint and credentials are those of the settings; what the settings omit is found as AWS's own
tools find it. aiobotocore is imported only for that: it is half of the start time of a service, and 40 MB of memory.
The signature is AWS's version 4, in headers; the time is an argument. botocore signs too, but building one of its
requests costs ten times the CPU of sending it.
"""

import asyncio
import hashlib
import hmac
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload
from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.port import Buffer, StoreError, StoreRefused, StoreUnavailable
from kafscale.storage.objects.progress import unacknowledged
from kafscale.storage.objects.s3_errors import from_answer
from yarl import URL

UNSIGNED: Final = "UNSIGNED-PAYLOAD"
KEEPALIVE_S: Final = 12.0
_JOIN_BELOW: Final = 1 << 16  # a system call costs more than copying this much
_HASH_HERE_MAX: Final = 1 << 16  # longer bodies are hashed in a thread
_ADDED_BY_AIOHTTP: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request is signed with."""

    access_key_id: str
    secret_access_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id})"


class Signer:
    """Signs for one region, and keeps the key of the day."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._key_of: tuple[str, str] = ("", "")
        self._key = b""

    def sign(
        self,
        method: str,
        *,
        host: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str],
        payload_hash: str,
        credentials: Credentials,
        now: datetime,
    ) -> dict[str, str]:
        """The headers to send: those given, in lower case, and the signature's. `path` and `query` are encoded."""
        time = now.strftime("%Y%m%dT%H%M%SZ")
        signed = {**headers, "host": host, "x-amz-content-sha256": payload_hash, "x-amz-date": time}
        if credentials.token is not None:
            signed["x-amz-security-token"] = credentials.token
        names = sorted(signed)
        listed = ";".join(names)
        lines = "".join(f"{name}:{' '.join(signed[name].split())}\n" for name in names)
        request = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{payload_hash}"
        scope = f"{time[:8]}/{self._region}/s3/aws4_request"
        text = f"{_ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = self._signing_key(credentials.secret_access_key, time[:8])
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        credential = f"{credentials.access_key_id}/{scope}"
        signed["authorization"] = (
            f"{_ALGORITHM} Credential={credential}, SignedHeaders={listed}, Signature={signature}"
        )
        return signed

    def _signing_key(self, secret: str, day: str) -> bytes:
        if self._key_of != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key_of, self._key = (secret, day), key
        return self._key


def encoded_query(query: Sequence[tuple[str, str]]) -> str:
    """A query as the signature expects it: by name, and every character but the unreserved ones encoded."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query)
    )


def encoded_key(key: str) -> str:
    """A key as it stands in a URL's path, encoded the one way that the signature expects."""
    return quote(key, safe="/-_.~")


@dataclass(frozen=True, slots=True)
class Session:
    """`credentials` is asked for each request, as they may be renewed. `ca_bundle`: a file, where not the system's."""

    endpoint: str
    credentials: Callable[[], Awaitable[Credentials]]
    ca_bundle: str | None


async def open_session(config: S3Config) -> Session:
    """Raises StoreError if a value is found nowhere, or if its source does not answer."""
    fixed = _fixed(config)
    if config.endpoint is not None and fixed is not None:
        return Session(config.endpoint, fixed, os.environ.get("AWS_CA_BUNDLE"))
    return await _discovered(config, fixed)


def _fixed(config: S3Config) -> Callable[[], Awaitable[Credentials]] | None:
    if config.access_key_id is None or config.secret_access_key is None:
        return None
    found = Credentials(config.access_key_id, config.secret_access_key)

    async def from_config() -> Credentials:
        return found

    return from_config


async def _discovered(config: S3Config, fixed: Callable[[], Awaitable[Credentials]] | None) -> Session:
    from aiobotocore.session import get_session  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    session = get_session()
    try:
        endpoint = config.endpoint or await _endpoint(config, session)
        credentials = fixed or _renewed(await session.get_credentials(), config)
        return Session(endpoint, credentials, session.get_config_variable("ca_bundle"))
    except (BotoCoreError, ClientError) as error:
        raise _store_error(error, config) from error


async def _endpoint(config: S3Config, session: Any) -> str:
    """AWS's for the region."""
    async with session.create_client(
        "s3",
        region_name=config.region,
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key,
    ) as client:
        found: str = client.meta.endpoint_url
        return found


def _renewed(found: Any, config: S3Config) -> Callable[[], Awaitable[Credentials]]:
    """What AWS's usual places hold, renewed as it runs out."""
    from botocore.exceptions import BotoCoreError, ClientError

    if found is None:
        raise StoreRefused(
            "",
            "no S3 credentials; set KAFSCALE_S3_ACCESS_KEY_ID and KAFSCALE_S3_SECRET_ACCESS_KEY, or give them as to "
            "AWS's tools",
        )

    async def from_session() -> Credentials:
        try:
            frozen = await found.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _store_error(error, config) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    return from_session


def _store_error(error: Exception, config: S3Config) -> StoreError:
    """A failure of botocore as an error of the port."""
    from botocore.exceptions import (
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        answer = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return from_answer(
            status, str(answer.get("Code", "")), str(answer.get("Message", "")), key="", config=config
        )
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ParamValidationError):
        return StoreRefused("", str(error))
    return StoreUnavailable("", f"{type(error).__name__}: {error}")


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


class Sent:
    """How much of a request the server's host has acknowledged."""

    def __init__(self) -> None:
        self._writer: StreamWriter | None = None

    def begin(self, writer: AbstractStreamWriter) -> None:
        """A connection was found. It begins again if aiohttp repeats the request over a new one."""
        assert isinstance(writer, StreamWriter), writer
        self._writer = writer

    def bytes(self) -> int:
        """-1 before there is a connection, or after it is lost."""
        writer = self._writer
        if writer is None or writer.transport is None:
            return -1
        return writer.output_size - unacknowledged(writer.transport)


class ScatterBody(Payload):
    """A body that aiohttp can send again, over a new connection."""

    _autoclose = True

    def __init__(self, parts: Sequence[Buffer], sent: Sent | None = None) -> None:
        super().__init__(parts)
        self._parts = parts
        self._sent = sent
        self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self._sent is not None:
            self._sent.begin(writer)
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
        sent: Sent | None = None,
    ) -> Answer:
        """One request and its whole answer; without a key it is the bucket's. `sent` learns how the body gets on.

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
        data = ScatterBody(body, sent) if method in ("PUT", "POST") else None
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

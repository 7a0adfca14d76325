"""The object store in an S3 bucket, by aiobotocore and, for the four frequent requests, straight over aiohttp.

A write is not repeated after any answer, since only the caller knows whether a second conditional PUT met its own
first. (The HTTP client does send it again when a kept-alive connection turns out closed; the caller then finds its
own attempt behind a 412.) Reads are repeated once. Bodies are neither hashed nor signed by default: their integrity
is the segment's own checksum.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.errors import (
    ObjectNotFound,
    PreconditionFailed,
    StoreRefused,
    StoreUnavailable,
)
from kafscale.storage.objects.port import (
    NO_METADATA,
    Buffer,
    Condition,
    IfAbsent,
    IfMatch,
    Metadata,
    ObjectInfo,
    ObjectStore,
)
from kafscale.storage.objects.probe import probe_conditions
from kafscale.storage.objects.s3_errors import FAILURES, from_answer, from_exception
from kafscale.storage.objects.s3_requests import Answer, ObjectRequests
from kafscale.storage.objects.s3_signing import Credentials

T = TypeVar("T")

READ_ATTEMPTS_MAX: Final = 2
_PROBE_PREFIX: Final = ".kafscale-probe/"
_METADATA_PREFIX: Final = "x-amz-meta-"


class S3Store:
    """Connects with its first request. `conditional_delete` is known after `probe`."""

    def __init__(self, config: S3Config) -> None:
        self.billed = True
        self.linger_min_ms = config.linger_min_ms
        self.puts_per_s_max = config.puts_per_s_max
        self.conditional_delete = False
        self._config = config
        self._client: Any = None
        self._requests: ObjectRequests | None = None
        self._connecting = asyncio.Lock()
        self._closing = AsyncExitStack()

    # -- objects

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        headers = {_METADATA_PREFIX + name.lower(): value for name, value in metadata.items()}
        match condition:
            case IfAbsent():
                headers["if-none-match"] = "*"
            case IfMatch(etag):
                headers["if-match"] = _quoted(etag)
            case None:
                pass
        try:
            answer = await self._send("PUT", key, headers, body)
        except ObjectNotFound as error:  # If-Match on a key that is not there
            raise PreconditionFailed(key, error.reason) from error
        return _etag(answer)

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        if end is not None and end <= start:  # the object and its etag are still asked for
            return (await self.get(key, if_match=if_match, start=start, end=start + 1))[:0]
        headers = {} if if_match is None else {"if-match": _quoted(if_match)}
        if start or end is not None:
            headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            answer = await self._repeated(lambda: self._send("GET", key, headers))
        except StoreRefused as error:
            if error.reason.startswith("416 "):
                return b""
            raise
        whole = "range" in headers and answer.status == 200
        return answer.body[start:end] if whole else answer.body

    async def head(self, key: str) -> ObjectInfo | None:
        try:
            answer = await self._repeated(lambda: self._send("HEAD", key, {}))
        except ObjectNotFound:
            return None
        return ObjectInfo(
            key=key,
            etag=_etag(answer),
            size=int(answer.headers["Content-Length"]),
            metadata={
                name.lower().removeprefix(_METADATA_PREFIX): value
                for name, value in answer.headers.items()
                if name.lower().startswith(_METADATA_PREFIX)
            },
        )

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """S3 does not say whether an unconditional DELETE found anything: True then."""
        try:
            await self._send("DELETE", key, {} if if_match is None else {"if-match": _quoted(if_match)})
        except ObjectNotFound:
            return False
        except PreconditionFailed:
            if await self.head(key) is None:
                return False
            raise
        return True

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        extra: dict[str, Any] = {"StartAfter": start_after} if start_after else {}
        while True:
            page = await self._list_page(prefix, extra)
            for item in page.get("Contents", ()):
                yield ObjectInfo(key=item["Key"], etag=item["ETag"].strip('"'), size=item["Size"])
            if not page.get("IsTruncated"):
                return
            extra = {"ContinuationToken": page["NextContinuationToken"]}

    async def _list_page(self, prefix: str, extra: dict[str, Any]) -> dict[str, Any]:
        return await self._repeated(lambda: self._call("list_objects_v2", prefix, Prefix=prefix, **extra))

    # -- the bucket

    async def probe(self) -> None:
        """The bucket is there, the credentials serve, and conditions are kept; see `probe.probe_conditions`."""
        await self._find_bucket()
        store: ObjectStore = self
        self.conditional_delete = await probe_conditions(store, f"{_PROBE_PREFIX}{uuid.uuid4().hex}")

    async def _find_bucket(self) -> None:
        try:
            await self._repeated(lambda: self._call("list_objects_v2", "", MaxKeys=1))
        except StoreRefused as error:
            if "does not exist" not in error.reason or not self._config.create_bucket:
                raise
            await self._call("create_bucket", "")

    async def close(self) -> None:
        self._client = self._requests = None
        await self._closing.aclose()

    # -- the way to S3

    async def _send(
        self, method: str, key: str, headers: Mapping[str, str], body: Sequence[Buffer] = ()
    ) -> Answer:
        """One frequent request within the time allowed; failures in the port's words."""
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                requests = self._requests or (await self._connect())[1]
                answer = await requests.send(method, key, headers, body)
        except FAILURES as error:
            raise from_exception(error, key=key, config=self._config) from error
        if 200 <= answer.status < 300:
            return answer
        raise from_answer(answer.status, *answer.error, key=key, config=self._config)

    async def _call(self, operation: str, key: str, **arguments: Any) -> Any:
        """One rare request within the time allowed; failures in the port's words."""
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                client = self._client or (await self._connect())[0]
                return await getattr(client, operation)(Bucket=self._config.bucket, **arguments)
        except FAILURES as error:
            raise from_exception(error, key=key, config=self._config) from error

    async def _repeated(self, request: Callable[[], Awaitable[T]]) -> T:
        """For reads only."""
        for _ in range(READ_ATTEMPTS_MAX - 1):
            try:
                return await request()
            except StoreUnavailable:
                continue
        return await request()

    async def _connect(self) -> tuple[Any, ObjectRequests]:
        async with self._connecting:
            if self._requests is None:
                await self._open()
            assert self._requests is not None
            return self._client, self._requests

    async def _open(self) -> None:
        config = self._config
        session = get_session()
        self._client = await self._closing.enter_async_context(
            session.create_client(
                "s3",
                region_name=config.region,
                endpoint_url=config.endpoint,
                aws_access_key_id=config.access_key_id,
                aws_secret_access_key=config.secret_access_key,
                config=_botocore_config(config),
            )
        )
        requests = ObjectRequests(
            config,
            endpoint=self._client.meta.endpoint_url,
            credentials=await _credentials(config, session),
            ca_bundle=session.get_config_variable("ca_bundle"),
        )
        self._closing.push_async_callback(requests.close)
        self._requests = requests


async def _credentials(config: S3Config, session: Any) -> Callable[[], Awaitable[Credentials]]:
    """Those of the config, else what AWS's usual places hold, renewed as they run out."""
    if config.access_key_id is not None and config.secret_access_key is not None:
        fixed = Credentials(config.access_key_id, config.secret_access_key)

        async def from_config() -> Credentials:
            return fixed

        return from_config
    found = await session.get_credentials()
    if found is None:
        raise StoreRefused(
            "", "no S3 credentials: neither in the settings nor where AWS's tools look for them"
        )

    async def from_session() -> Credentials:
        frozen = await found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    return from_session


def _botocore_config(config: S3Config) -> AioConfig:
    return AioConfig(
        connect_timeout=config.connect_timeout_s,
        read_timeout=config.request_timeout_s,
        max_pool_connections=config.connections_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if config.endpoint else "auto"},
    )


def _quoted(etag: str) -> str:
    return f'"{etag}"'


def _etag(answer: Answer) -> str:
    return answer.headers["ETag"].strip('"')

"""The object store in an S3 bucket, by aiobotocore.

A write is not repeated after any answer, since only the caller knows whether a second conditional PUT met its
own first. (The HTTP client does send it again when a kept-alive connection turns out closed; the caller then
finds its own attempt behind a 412.) Reads are repeated once. Bodies are neither hashed nor signed by default:
their integrity is the segment's own checksum.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.errors import (
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
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
from kafscale.storage.objects.s3_errors import FAILURES, translate

T = TypeVar("T")

READ_ATTEMPTS_MAX: Final = 2
_PROBE_PREFIX: Final = ".kafscale-probe/"


class S3Store:
    """Connects with its first request. `conditional_delete` is known after `probe`."""

    def __init__(self, config: S3Config) -> None:
        self.billed = True
        self.linger_min_ms = config.linger_min_ms
        self.puts_per_s_max = config.puts_per_s_max
        self.conditional_delete = False
        self._config = config
        self._bucket = config.bucket
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._closing = AsyncExitStack()

    # -- requests

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        extra: dict[str, Any] = {"Metadata": dict(metadata)} if metadata else {}
        match condition:
            case IfAbsent():
                extra["IfNoneMatch"] = "*"
            case IfMatch(etag):
                extra["IfMatch"] = _quoted(etag)
            case None:
                pass
        data = body[0] if len(body) == 1 and isinstance(body[0], bytes) else b"".join(body)
        try:
            answer = await self._ask("put_object", key, Key=key, Body=data, **extra)
        except ObjectNotFound as error:  # If-Match on a key that is not there
            raise PreconditionFailed(key, error.reason) from error
        return _unquoted(answer["ETag"])

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        extra: dict[str, Any] = {} if if_match is None else {"IfMatch": _quoted(if_match)}
        if end is not None and end <= start:
            end = start + 1  # the object and its etag are still asked for
            return (await self.get(key, if_match=if_match, start=start, end=end))[:0]
        if start or end is not None:
            extra["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            return await self._repeated(lambda: self._read(key, start, end, extra))
        except StoreRefused as error:
            if error.reason.startswith("416 "):
                return b""
            raise

    async def _read(self, key: str, start: int, end: int | None, extra: dict[str, Any]) -> bytes:
        answer = await self._ask("get_object", key, read_body=True, Key=key, **extra)
        data: bytes = answer["Body"]
        if len(data) != answer["ContentLength"]:
            raise StoreUnavailable(key, f"{len(data)} of {answer['ContentLength']} bytes came")
        whole = "Range" in extra and answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        return data[start:end] if whole else data

    async def head(self, key: str) -> ObjectInfo | None:
        try:
            answer = await self._repeated(lambda: self._ask("head_object", key, Key=key))
        except ObjectNotFound:
            return None
        metadata = {name.lower(): value for name, value in answer.get("Metadata", {}).items()}
        size = answer["ContentLength"]
        return ObjectInfo(key=key, etag=_unquoted(answer["ETag"]), size=size, metadata=metadata)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """S3 does not say whether an unconditional DELETE found anything: True then."""
        if if_match is None:
            await self._ask("delete_object", key, Key=key)
            return True
        try:
            await self._ask("delete_object", key, Key=key, IfMatch=_quoted(if_match))
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
                yield ObjectInfo(key=item["Key"], etag=_unquoted(item["ETag"]), size=item["Size"])
            if not page.get("IsTruncated"):
                return
            extra = {"ContinuationToken": page["NextContinuationToken"]}

    async def _list_page(self, prefix: str, extra: dict[str, Any]) -> dict[str, Any]:
        return await self._repeated(lambda: self._ask("list_objects_v2", prefix, Prefix=prefix, **extra))

    # -- the bucket

    async def probe(self) -> None:
        """One request and its whole answer in the time allowed; failures in the port's words."""
        await self._find_bucket()
        store: ObjectStore = self
        self.conditional_delete = await probe_conditions(store, f"{_PROBE_PREFIX}{uuid.uuid4().hex}")

    async def _find_bucket(self) -> None:
        try:
            await self._repeated(lambda: self._ask("list_objects_v2", "", MaxKeys=1))
        except StoreRefused as error:
            if "does not exist" not in error.reason or not self._config.create_bucket:
                raise
            await self._ask("create_bucket", "")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._closing.aclose()

    # -- the way to S3

    async def _ask(self, operation: str, key: str, *, read_body: bool = False, **arguments: Any) -> Any:
        """One request with its whole answer within the time limit; failures in the port's words."""
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                client = self._client or await self._connect()
                answer = await getattr(client, operation)(Bucket=self._bucket, **arguments)
                if read_body:
                    async with answer["Body"] as stream:
                        answer["Body"] = await stream.read()
                return answer
        except FAILURES as error:
            raise self._translated(error, key) from error

    def _translated(self, error: Exception, key: str) -> StoreError:
        return translate(error, key=key, bucket=self._bucket, endpoint=self._config.endpoint)

    async def _repeated(self, request: Callable[[], Awaitable[T]]) -> T:
        """For reads only: a kept-alive connection may have been closed by the server meanwhile."""
        for _ in range(READ_ATTEMPTS_MAX - 1):
            try:
                return await request()
            except StoreUnavailable:
                continue
        return await request()

    async def _connect(self) -> Any:
        async with self._connecting:
            if self._client is None:
                config = self._config
                self._client = await self._closing.enter_async_context(
                    get_session().create_client(
                        "s3",
                        region_name=config.region,
                        endpoint_url=config.endpoint,
                        aws_access_key_id=config.access_key_id,
                        aws_secret_access_key=config.secret_access_key,
                        config=_botocore_config(config),
                    )
                )
            return self._client


def _botocore_config(config: S3Config) -> AioConfig:
    return AioConfig(
        connect_timeout=config.connect_timeout_s,
        read_timeout=config.request_timeout_s,
        max_pool_connections=config.connections_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        s3={
            "payload_signing_enabled": config.payload_signing,
            # A server of one's own rarely has a DNS name per bucket.
            "addressing_style": "path" if config.endpoint else "auto",
        },
    )


def _quoted(etag: str) -> str:
    return f'"{etag}"'


def _unquoted(etag: str) -> str:
    return etag.strip('"')

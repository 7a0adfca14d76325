"""The object store in an S3 bucket, straight over aiohttp: an SDK's client costs more than the requests do.

A write is not repeated after any answer, since only the caller knows whether a second conditional PUT met its own
first. (The HTTP client does send it again when a kept-alive connection turns out closed; the caller then finds its
own attempt behind a 412.) Reads are repeated once. Bodies are neither hashed nor signed by default: their integrity
is the segment's own checksum. A PUT has `request_timeout_s` for a connection, and then between two bytes that the
server's host acknowledges (`progress`); any other request has it for the whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from kafscale.storage.objects.config import S3Config, S3Encryption
from kafscale.storage.objects.port import (
    DELETES_MAX,
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    IfAbsent,
    IfMatch,
    Metadata,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    Outcome,
    PreconditionFailed,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnsuitable,
    delete_singly,
)
from kafscale.storage.objects.probe import PROBE_PREFIX, Batches, probe_batches, probe_conditions
from kafscale.storage.objects.progress import while_moving
from kafscale.storage.objects.s3_errors import FAILURES, from_answer, from_code, from_exception
from kafscale.storage.objects.s3_requests import Answer, ObjectRequests, Sent, open_session
from kafscale.storage.objects.s3_xml import (
    DELETE_QUERY,
    BadAnswer,
    Page,
    Query,
    delete_body,
    delete_headers,
    fits,
    list_query,
    parse_deleted,
    parse_page,
    quoted,
)
from kafscale.storage.system import random_uuid

T = TypeVar("T")

READ_ATTEMPTS_MAX: Final = 2
_CONNECTIONS_FOR_PUTS: Final = (3, 4)
"""The share of the connections that PUTs may use. The rest serve the requests that decide about PUTs."""
_METADATA_PREFIX: Final = "x-amz-meta-"
_ENCRYPTION: Final = "x-amz-server-side-encryption"


class S3Store:
    """Connects with its first request. `conditional_delete` and `batches` are known after `probe`."""

    def __init__(self, config: S3Config) -> None:
        self.bills_requests = True
        of, share = _CONNECTIONS_FOR_PUTS
        self.puts_at_once_max: int | None = max(1, config.connections_max * of // share)
        self.conditional_delete = False
        self.batches = Batches.NONE
        self._config = config
        self._encryption = encryption_headers(config.encryption)
        self._requests: ObjectRequests | None = None
        self._connecting = asyncio.Lock()

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
        headers |= self._encryption
        match condition:
            case IfAbsent():
                headers["if-none-match"] = "*"
            case IfMatch(etag):
                headers["if-match"] = quoted(etag)
            case None:
                pass
        try:
            answer = await self._put(key, headers, body)
        except ObjectNotFound as error:  # If-Match on a key that is not there
            raise PreconditionFailed(key, error.reason) from error
        return _etag(answer)

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        if end is not None and end <= start:  # the object and its etag are still asked for
            return (await self.get(key, if_match=if_match, start=start, end=start + 1))[:0]
        headers = {} if if_match is None else {"if-match": quoted(if_match)}
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
            await self._send("DELETE", key, {} if if_match is None else {"if-match": quoted(if_match)})
        except ObjectNotFound:
            return False
        except PreconditionFailed:
            if await self.head(key) is None:
                return False
            raise
        return True

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        """By one request where the probe found that this keeps the conditions as well as single requests do."""
        assert len(doomed) <= DELETES_MAX, len(doomed)
        together = [each for each in doomed if self._may_go_together(each)]
        singly = [each for each in doomed if not self._may_go_together(each)]
        found = dict(zip(together, await self._delete_together(together), strict=True))
        found |= zip(singly, await delete_singly(self._delete_if, singly), strict=True)
        return [found[each] for each in doomed]

    def _may_go_together(self, doomed: Doomed) -> bool:
        kept = self.batches is Batches.CONDITIONAL or (self.batches is Batches.PLAIN and doomed.etag is None)
        return kept and fits(doomed)

    async def _delete_together(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        if not doomed:
            return []
        body = delete_body(doomed)
        try:
            answer = await self._send("POST", "", delete_headers(body), [body], DELETE_QUERY)
            said = parse_deleted(answer.body)
        except StoreError as error:
            return [error] * len(doomed)
        except BadAnswer as strange:
            return [StoreUnavailable("", str(strange))] * len(doomed)
        return [await self._outcome(each.key, said) for each in doomed]

    async def _outcome(self, key: str, said: Mapping[str, tuple[str, str] | None]) -> Outcome:
        if key not in said:
            return StoreUnavailable(key, "the answer to its deletion does not name it")
        failure = said[key]
        if failure is None:
            return True
        error = from_code(*failure, key=key, config=self._config)
        if isinstance(error, ObjectNotFound):
            return False
        if isinstance(error, PreconditionFailed):
            try:
                return error if await self.head(key) is not None else False
            except StoreError as open_question:
                return open_question
        return error

    async def _delete_if(self, key: str, etag: str | None) -> bool:
        return await self.delete(key, if_match=etag)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        page = await self._list_page(list_query(prefix, start_after=start_after))
        while True:
            for info in page.objects:
                yield info
            if page.next_token is None:
                return
            page = await self._list_page(list_query(prefix, token=page.next_token))

    async def _list_page(self, query: Query) -> Page:
        answer = await self._repeated(lambda: self._send("GET", "", {}, query=query))
        try:
            return parse_page(answer.body)
        except BadAnswer as strange:
            raise StoreUnavailable("", str(strange)) from strange

    # -- the bucket

    async def probe(self) -> None:
        """The bucket is there, the credentials serve, and conditions are kept; see `probe.probe_conditions`."""
        await self._find_bucket()
        if not self._config.probe_writes:
            return
        store: ObjectStore = self
        key = f"{PROBE_PREFIX}{random_uuid().hex}"
        self.conditional_delete = await probe_conditions(store, key)
        self.batches = await probe_batches(store, key, self._delete_together)
        await self._probe_encryption(key)

    async def _probe_encryption(self, key: str) -> None:
        """A server that ignores the header would keep records in the clear, and say nothing."""
        if not self._encryption:
            return
        answer = await self._put(key, self._encryption, [b"probe"])
        await self.delete(key)
        asked, done = self._encryption[_ENCRYPTION], answer.headers.get(_ENCRYPTION)
        if done != asked:
            raise StoreUnsuitable(
                key, f"it does not encrypt: asked for {asked}, it answered {done or 'without encryption'}"
            )

    async def _find_bucket(self) -> None:
        try:
            await self._list_page(list_query("", keys_max=1))
        except StoreRefused as error:
            if "does not exist" not in error.reason or not self._config.create_bucket:
                raise
            await self._send("PUT", "", {})

    async def close(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.close()

    # -- the way to S3

    async def _put(self, key: str, headers: Mapping[str, str], body: Sequence[Buffer]) -> Answer:
        sent, stall_s = Sent(), self._config.request_timeout_s
        limit = while_moving(sent.bytes, size=sum(map(len, body)), stall_s=stall_s)
        return await self._asked(limit, "PUT", key, headers, body, sent=sent)

    async def _send(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        body: Sequence[Buffer] = (),
        query: Query = (),
    ) -> Answer:
        """One request within the time allowed. Without a key it is the bucket's."""
        limit = asyncio.timeout(self._config.request_timeout_s)
        return await self._asked(limit, method, key, headers, body, query)

    async def _asked(
        self,
        limit: AbstractAsyncContextManager[object],
        method: str,
        key: str,
        headers: Mapping[str, str],
        body: Sequence[Buffer],
        query: Query = (),
        sent: Sent | None = None,
    ) -> Answer:
        """The answer within `limit`; failures in the port's words."""
        try:
            async with limit:
                requests = self._requests or await self._connect()
                answer = await requests.send(method, key, headers, body, query, sent)
        except FAILURES as error:
            raise from_exception(error, key=key) from error
        if 200 <= answer.status < 300:
            return answer
        raise from_answer(answer.status, *answer.error, key=key, config=self._config)

    async def _repeated(self, request: Callable[[], Awaitable[T]]) -> T:
        """For reads only."""
        for _ in range(READ_ATTEMPTS_MAX - 1):
            try:
                return await request()
            except StoreUnavailable:
                continue
        return await request()

    async def _connect(self) -> ObjectRequests:
        async with self._connecting:
            if self._requests is None:
                self._requests = ObjectRequests(self._config, await open_session(self._config))
            return self._requests


def encryption_headers(encryption: S3Encryption | None) -> dict[str, str]:
    """Of a PUT."""
    if encryption is None:
        return {}
    headers: dict[str, str] = {_ENCRYPTION: encryption.kind}
    if encryption.kms_key_id is not None:
        headers[_ENCRYPTION + "-aws-kms-key-id"] = encryption.kms_key_id
    return headers


def _etag(answer: Answer) -> str:
    return answer.headers["ETag"].strip('"')

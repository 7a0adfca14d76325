"""A watch that survives lost connections, leaders and members. It has one gRPC stream at a time, and resumes after the
last revision that it delivered completely.

It needs no queue: it reads events only as fast as the consumer takes them, and gRPC's flow control keeps the rest in
etcd. It does not use progress notifications, which could overtake events before 3.4.25 and 3.5.8 (etcd #15220). If etcd
has compacted the history, the watch ends with `WatchCompacted`, and the consumer must read the range again.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import grpc
import grpc.aio
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.errors import (
    EtcdError,
    EtcdRejected,
    EtcdUnknown,
    UnknownKind,
    WatchCompacted,
    classify,
)
from kafscale.storage.etcd.ops import WatchBatch, WatchEvent, decode_event
from kafscale.storage.etcd.pool import WATCH, Pool, Stream

BACKOFF_FIRST_MS = 50
BACKOFF_MAX_MS = 1_000
OPEN_TIMEOUT_S = 5.0


class Watch:
    """Iterate it from one task at a time, and close it: leaving the loop does not close it."""

    def __init__(self, pool: Pool, *, key: bytes, range_end: bytes | None, start_revision: int) -> None:
        assert start_revision > 0, "a watch starts after a revision that was read"
        self._pool = pool
        self._key = key
        self._range_end = range_end
        self._next = start_revision
        self._held: list[WatchEvent] = []  # events of a revision whose last fragment has not arrived
        self._stream: Stream[pb.WatchResponse] | None = None
        self._backoff = Backoff(first_ms=BACKOFF_FIRST_MS, cap_ms=BACKOFF_MAX_MS)
        self._failed = False  # since the last batch: the first failure is retried at once
        self._logged_in_anew = False  # because etcd refused the watch
        self.resumes = 0
        """Streams opened after the first."""

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._drop()

    async def __anext__(self) -> WatchBatch:
        while True:
            try:
                batch = self._take(await self._read())
            except (EtcdUnknown, EtcdRejected) as failure:
                await self._recover(failure)
                continue
            except BaseException:
                # Cancelled in the middle, or compacted: the stream cannot be read any further.
                self._drop()
                raise
            if batch is not None:
                self._failed = False
                self._backoff.reset()
                return batch

    async def _read(self) -> pb.WatchResponse:
        try:
            if self._stream is None:
                async with asyncio.timeout(OPEN_TIMEOUT_S):
                    return await self._open()
            return _message(await self._stream.call.read())
        except grpc.aio.AioRpcError as error:
            raise classify(error.code(), error.details() or "", self._endpoint()) from None
        except TimeoutError:
            raise EtcdUnknown(
                UnknownKind.TIMEOUT, "the watch was not opened in time", self._endpoint()
            ) from None

    async def _open(self) -> pb.WatchResponse:
        stream = self._stream = await self._pool.stream(WATCH)
        create = pb.WatchCreateRequest(
            key=self._key,
            range_end=self._range_end or b"",
            start_revision=self._next,
            fragment=True,
        )
        await stream.call.write(pb.WatchRequest(create_request=create))
        return _message(await stream.call.read())

    def _take(self, response: pb.WatchResponse) -> WatchBatch | None:
        if response.canceled:
            if response.compact_revision:
                raise WatchCompacted(response.compact_revision)
            raise _cancelled(response.cancel_reason, self._endpoint())
        self._logged_in_anew = False
        if not response.events:
            return None
        events = [*self._held, *map(decode_event, response.events)]
        self._held = []
        complete = events[-1].kv.mod_revision
        if response.fragment:
            whole = [event for event in events if event.kv.mod_revision < complete]
            self._held = events[len(whole) :]
            events, complete = whole, complete - 1
        self._next = complete + 1
        return WatchBatch(tuple(events), complete) if events else None

    async def _recover(self, failure: EtcdError) -> None:
        """Ends the stream, and waits before the next one. Raises a refusal that a new token has not cured."""
        stream = self._stream
        self._drop()
        self.resumes += 1
        if isinstance(failure, EtcdRejected):
            token = None if stream is None else stream.token
            if not self._pool.forget_token(failure, token) and not self._log_in_anew(failure, token):
                raise failure
        elif stream is not None:
            self._pool.failed(stream.member)
        if self._failed:
            await self._backoff.sleep()
        self._failed = True

    def _log_in_anew(self, refused: EtcdRejected, token: str | None) -> bool:
        """Once in a row. etcd refuses a watch with a stale token by the same words as one without a right."""
        if refused.code is not grpc.StatusCode.PERMISSION_DENIED or token is None or self._logged_in_anew:
            return False
        self._pool.drop_token(token)
        self._logged_in_anew = True
        return True

    def _drop(self) -> None:
        stream, self._stream, self._held = self._stream, None, []
        if stream is not None:
            stream.call.cancel()

    def _endpoint(self) -> str:
        return "" if self._stream is None else self._stream.member.endpoint.target


def _message(answer: object) -> pb.WatchResponse:
    if not isinstance(answer, pb.WatchResponse):
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "etcd ended the watch")
    return answer


def _cancelled(reason: str, endpoint: str) -> EtcdUnknown | EtcdRejected:
    if "permission denied" in reason:
        return EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, reason, endpoint)
    refused = EtcdRejected(grpc.StatusCode.UNAUTHENTICATED, reason, endpoint)
    if refused.is_stale_token:
        return refused
    return EtcdUnknown(UnknownKind.OTHER, f"etcd cancelled the watch: {reason}", endpoint)

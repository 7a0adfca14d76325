"""One attempt of one request at one endpoint, and the choice of the endpoint.

An attempt ends in an answer, `EtcdUnknown` or `EtcdRejected`. This module sends only two kinds of requests again:
requests that read (`reading`), and a request that etcd refused because the token was stale, which etcd checks before it
does anything. After an unknown outcome the next request goes to the next endpoint.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.errors import EtcdRejected, EtcdUnknown, UnknownKind, classify
from kafscale.storage.etcd.transport import Access, Endpoint

RETRY_PAUSE_S = 0.05
"""Between two rounds over all endpoints while reading."""
TRY_MIN_S = 0.3
AUTH_TIMEOUT_S = 3.0
CLOSE_GRACE_S = 0.5

Answer = TypeVar("Answer", bound=Message)
# A member that has lost its leader refuses at once.
_LEADER = ("hasleader", "true")


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    path: str
    answer: type[Answer]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
PUT = Method("/etcdserverpb.KV/Put", pb.PutResponse)
DELETE_RANGE = Method("/etcdserverpb.KV/DeleteRange", pb.DeleteRangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
LEASE_TTL = Method("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveResponse)
LEASE_KEEPALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)
ALARM = Method("/etcdserverpb.Maintenance/Alarm", pb.AlarmResponse)
DEFRAGMENT = Method("/etcdserverpb.Maintenance/Defragment", pb.DefragmentResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


def serialize(message: Message) -> bytes:
    return message.SerializeToString()


@dataclass(slots=True)
class Member:
    endpoint: Endpoint
    channel: grpc.aio.Channel
    unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = field(default_factory=dict)

    def call(self, method: Method[Answer]) -> grpc.aio.UnaryUnaryMultiCallable[Any, Answer]:
        found = self.unary.get(method.path)
        if found is None:
            found = self.unary[method.path] = self.channel.unary_unary(
                method.path, request_serializer=serialize, response_deserializer=method.answer.FromString
            )
        return found


class Pool:
    """The connections of one client. Channels are made on first use, inside the event loop."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._members: list[Member] = []
        self._current = 0
        self._token: str | None = None
        self._authenticating = asyncio.Lock()
        self._closed = False

    async def once(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        """One attempt. A second one follows only if etcd refused the token, before it did anything."""
        try:
            return await self._try(method, request, timeout_s)
        except EtcdRejected as rejected:
            if not self.forget_token(rejected):
                raise
        return await self._try(method, request, timeout_s)

    async def reading(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        """Tries every endpoint in turn until the deadline. Only for requests that change nothing."""
        deadline = time.monotonic() + timeout_s
        left = len(self.access.endpoints)
        while True:
            remaining = deadline - time.monotonic()
            share = remaining if left <= 1 else max(remaining / left, TRY_MIN_S)
            try:
                return await self.once(method, request, min(share, remaining))
            except EtcdUnknown:
                if deadline - time.monotonic() <= RETRY_PAUSE_S:
                    raise
            left -= 1
            if left <= 0:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def stream(self, method: Method[Answer]) -> tuple[grpc.aio.StreamStreamCall[Any, Answer], Member]:
        """A stream at the current endpoint. Call `failed(member)` if it breaks."""
        if self.access.user and self._token is None:
            await self._authenticate()
        member = self._member()
        call = member.channel.stream_stream(
            method.path, request_serializer=serialize, response_deserializer=method.answer.FromString
        )
        return call(metadata=self._metadata()), member

    def failed(self, member: Member) -> None:
        """Uses the next endpoint from now on, unless another request has already moved to it."""
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    def forget_token(self, rejected: EtcdRejected) -> bool:
        """Drops a stale token, so that the next request authenticates first. Returns whether that may help."""
        if not (self.access.user and rejected.is_stale_token):
            return False
        self._token = None
        return True

    async def _authenticate(self) -> None:
        """Gets one token for all requests that wait for one."""
        async with self._authenticating:
            if self._token is not None:
                return
            request = pb.AuthenticateRequest(name=self.access.user or "", password=self.access.password or "")
            try:
                answer = await self._send(AUTHENTICATE, request, AUTH_TIMEOUT_S, (_LEADER,))
            except EtcdRejected as rejected:
                if not rejected.is_without_users:
                    raise
            else:
                self._token = answer.token

    async def close(self) -> None:
        self._closed = True
        members, self._members = self._members, []
        for member in members:
            await member.channel.close(CLOSE_GRACE_S)

    async def _try(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        if self.access.user and self._token is None:
            await self._authenticate()
        return await self._send(method, request, timeout_s, self._metadata())

    async def _send(
        self,
        method: Method[Answer],
        request: Message,
        timeout_s: float,
        metadata: tuple[tuple[str, str], ...],
    ) -> Answer:
        member = self._member()
        # A single endpoint has no failover: wait for its connection instead.
        alone = len(self._members) == 1
        call = member.call(method)(request, timeout=timeout_s, metadata=metadata, wait_for_ready=alone)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            failure = classify(error.code(), error.details() or "", member.endpoint.target)
        if isinstance(failure, EtcdUnknown) and failure.kind is not UnknownKind.NOSPACE:
            self.failed(member)
        raise failure

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (_LEADER,) if self._token is None else (_LEADER, ("token", self._token))

    def _member(self) -> Member:
        assert not self._closed, "the etcd client is closed"
        if not self._members:
            self._members = [Member(e, self.access.channel(e)) for e in self.access.endpoints]
        return self._members[self._current]

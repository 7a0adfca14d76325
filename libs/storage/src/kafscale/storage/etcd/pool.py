"""One attempt of one request at one endpoint, and the choice of the endpoint.

An attempt ends in an answer, `EtcdUnknown` or `EtcdRejected`. This module sends only two kinds of requests again:
requests that read (`reading`), and a request that etcd refused because the token was stale, which etcd checks before it
does anything. After an unknown outcome the next request goes to the next endpoint, and a connection whose certificate
files were replaced is made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.errors import EtcdRejected, EtcdUnknown, UnknownKind, classify
from kafscale.storage.etcd.transport import Access, Endpoint
from kafscale.storage.operator_files import Stamp
from kafscale.storage.system import monotonic_s

RETRY_FIRST_MS = 50
RETRY_MAX_MS = 500
"""Between two rounds over all endpoints while reading. Many readers wait when etcd is away."""
TRY_MIN_S = 0.3
AUTH_TIMEOUT_S = 3.0
LOGINS_MAX = 20
"""For one request. Each change of a user or a role makes all tokens stale, and several may follow each other."""
CLOSE_GRACE_S = 0.5

LOGIN_PAUSE_S = 0.5
"""After a refused login all requests of the client fail for this time: checking a password is work for etcd."""

Answer = TypeVar("Answer", bound=Message)
# A member that has lost its leader refuses at once.
_LEADER = ("hasleader", "true")


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    path: str
    answer: type[Answer]
    revision: Callable[[Answer], int] | None = None
    """Of the answer, if it is at least that of every answer that came before the request was sent."""


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse, lambda answer: answer.header.revision)
PUT = Method("/etcdserverpb.KV/Put", pb.PutResponse, lambda answer: answer.header.revision)
DELETE_RANGE = Method(
    "/etcdserverpb.KV/DeleteRange", pb.DeleteRangeResponse, lambda answer: answer.header.revision
)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse, lambda answer: answer.header.revision)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
LEASE_TTL = Method("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveResponse)
LEASE_KEEPALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)
ALARM = Method("/etcdserverpb.Maintenance/Alarm", pb.AlarmResponse)
SNAPSHOT = Method("/etcdserverpb.Maintenance/Snapshot", pb.SnapshotResponse)
DEFRAGMENT = Method("/etcdserverpb.Maintenance/Defragment", pb.DefragmentResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


def serialize(message: Message) -> bytes:
    return message.SerializeToString()


@dataclass(slots=True)
class Member:
    endpoint: Endpoint
    channel: grpc.aio.Channel
    stamp: Stamp
    """Of the certificate files that the channel was made with."""
    unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = field(default_factory=dict)

    def call(self, method: Method[Answer]) -> grpc.aio.UnaryUnaryMultiCallable[Any, Answer]:
        found = self.unary.get(method.path)
        if found is None:
            found = self.unary[method.path] = self.channel.unary_unary(
                method.path, request_serializer=serialize, response_deserializer=method.answer.FromString
            )
        return found


@dataclass(slots=True)
class Revisions:
    """Of the answers to linearizable requests. etcd went back if one is older than an answer before its request."""

    newest: int = 0
    fell: tuple[int, int] | None = None
    """The revision that was known when a request was sent, and the lower one of its answer."""

    def note(self, known: int, answered: int) -> None:
        if answered < known and self.fell is None:
            self.fell = (known, answered)
        self.newest = max(self.newest, answered)


@dataclass(frozen=True, slots=True)
class Stream(Generic[Answer]):
    """An open stream, where it is, and the token with which it was opened."""

    call: grpc.aio.StreamStreamCall[Any, Answer]
    member: Member
    token: str | None = field(repr=False)


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return (_LEADER,) if token is None else (_LEADER, ("token", token))


class Pool:
    """The connections of one client. Channels are made on first use, inside the event loop."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._members: list[Member] = []
        self._current = 0
        self._token: str | None = None
        self._authenticating = asyncio.Lock()
        self._locked_out: str | None = None  # why etcd refused the last login
        self._log_in_at = 0.0
        self._closed = False
        self.revisions = Revisions()
        self._closing: set[asyncio.Task[None]] = set()

    async def once(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        """One attempt. Another one follows only if etcd refused the token, before it did anything."""
        deadline = monotonic_s() + timeout_s
        for left in reversed(range(LOGINS_MAX)):
            token = await self._logged_in()
            revisions = self.revisions
            known = revisions.newest
            try:
                answer = await self._send(method, request, deadline - monotonic_s(), _metadata(token))
            except EtcdRejected as rejected:
                if not (left and self.forget_token(rejected, token)) or monotonic_s() >= deadline:
                    raise
            else:
                if method.revision is not None:
                    revisions.note(known, method.revision(answer))
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def reading(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        """Tries every endpoint in turn until the deadline. Only for requests that change nothing."""
        deadline = monotonic_s() + timeout_s
        left = len(self.access.endpoints)
        backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_MAX_MS)
        while True:
            remaining = deadline - monotonic_s()
            share = remaining if left <= 1 else max(remaining / left, TRY_MIN_S)
            try:
                return await self.once(method, request, min(share, remaining))
            except EtcdUnknown:
                over_s = deadline - monotonic_s() - RETRY_FIRST_MS / 1000
                if over_s <= 0:
                    raise
            left -= 1
            if left <= 0:
                await asyncio.sleep(min(over_s, backoff.next_s()))

    async def stream(self, method: Method[Answer]) -> Stream[Answer]:
        """A stream at the current endpoint. Call `failed` with its member if it breaks."""
        token = await self._logged_in()
        member = self._member()
        call = member.channel.stream_stream(
            method.path, request_serializer=serialize, response_deserializer=method.answer.FromString
        )
        return Stream(call(metadata=_metadata(token)), member, token)

    async def answers(self, method: Method[Answer], request: Message, idle_s: float) -> AsyncIterator[Answer]:
        """The messages of a streamed answer, read as they are asked for. `idle_s`: the longest time between two.

        It is not resumed: an error ends it, as EtcdUnknown or EtcdRejected.
        """
        token = await self._logged_in()
        member = self._member()
        streamed = member.channel.unary_stream(
            method.path, request_serializer=serialize, response_deserializer=method.answer.FromString
        )
        call = streamed(request, metadata=_metadata(token))
        try:
            while True:
                async with asyncio.timeout(idle_s):
                    answer = await call.read()
                if not isinstance(answer, method.answer):  # the end of the stream
                    return
                yield answer
        except TimeoutError:
            raise EtcdUnknown(UnknownKind.TIMEOUT, f"silent for {idle_s} s", member.endpoint.target) from None
        except grpc.aio.AioRpcError as error:
            detail = error.details() or ""
            # On streams etcd 3.4 sends the errors of its users without their codes.
            code = grpc.StatusCode.PERMISSION_DENIED if detail.startswith("auth: ") else error.code()
            failure = classify(code, detail, member.endpoint.target)
            if isinstance(failure, EtcdRejected):
                self.forget_token(failure, token)
            raise failure from error
        finally:
            call.cancel()

    def failed(self, member: Member) -> None:
        """Uses the next endpoint from now on, unless another request has already moved to it."""
        at = next((number for number, each in enumerate(self._members) if each is member), None)
        if at is None:  # it was renewed meanwhile, or the client is closed
            return
        self._members[at] = self._renewed(member)
        if at == self._current:
            self._current = (at + 1) % len(self._members)

    def forget_token(self, rejected: EtcdRejected, used: str | None) -> bool:
        """Drops the token that a refused request used, if it was stale. Returns whether another attempt may help."""
        if not (self.access.user and rejected.is_stale_token):
            return False
        self.drop_token(used)
        return True

    def drop_token(self, used: str | None) -> None:
        """The next request logs in, unless another one has done so since: 100 requests may fail by one token."""
        if self._token == used:
            self._token = None

    async def _logged_in(self) -> str | None:
        """One token for all requests that wait for one. None: etcd or this client has no users."""
        if self._token is not None or not self.access.user:
            return self._token
        async with self._authenticating:
            if self._token is None:
                if self._locked_out is not None and monotonic_s() < self._log_in_at:
                    raise EtcdUnknown(UnknownKind.LOGIN, self._locked_out)
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str | None:
        """With the first password that etcd accepts."""
        for password in self.access.passwords.to_try():
            try:
                return await self._login(password)
            except EtcdRejected as rejected:
                if not rejected.is_wrong_password:
                    raise
                refused = rejected
        failure = self.access.passwords.all_refused(refused)
        if isinstance(failure, EtcdUnknown):
            self._locked_out, self._log_in_at = failure.detail, monotonic_s() + LOGIN_PAUSE_S
        raise failure from refused

    async def _login(self, password: str) -> str | None:
        """A token; None if authentication is disabled in etcd."""
        request = pb.AuthenticateRequest(name=self.access.user or "", password=password)
        try:
            answer = await self._send(AUTHENTICATE, request, AUTH_TIMEOUT_S, (_LEADER,))
        except EtcdRejected as rejected:
            if not rejected.is_without_users:
                raise
            return None
        self.access.passwords.accepted(password)
        return answer.token

    async def close(self) -> None:
        self._closed = True
        members, self._members = self._members, []
        for member in members:
            await member.channel.close(CLOSE_GRACE_S)
        await asyncio.gather(*self._closing)

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

    def _member(self) -> Member:
        assert not self._closed, "the etcd client is closed"
        if not self._members:
            stamp = self._stamp()
            self._members = [Member(e, self.access.channel(e), stamp) for e in self.access.endpoints]
        return self._members[self._current]

    def _stamp(self) -> Stamp:
        return () if self.access.tls is None else self.access.tls.stamp()

    def _renewed(self, member: Member) -> Member:
        """With a new channel if the certificate files were replaced: a channel keeps what it was made with."""
        if not member.endpoint.secure:
            return member
        try:
            stamp = self._stamp()
            if stamp == member.stamp:
                return member
            channel = self.access.channel(member.endpoint)
        except OSError:  # a file is gone while it is replaced: the next failure looks again
            return member
        closing = asyncio.get_running_loop().create_task(member.channel.close(CLOSE_GRACE_S))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return Member(member.endpoint, channel, stamp)

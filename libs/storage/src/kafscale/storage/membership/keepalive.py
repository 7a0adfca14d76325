"""What keeps an instance's lease alive as long as its event loop runs: the decisions, and the thread that acts on them.

A process whose loop is stuck serves no client, so it must lose its lease: the thread sends a keepalive only if the loop
ticked recently. A separate thread sends them, because a loop that is only busy must not lose the lease. The thread uses
gRPC's blocking stack; the asyncio stack would need the loop.

A keepalive that etcd refuses (the user's rights or password changed) is sent again with a new token. If etcd still
refuses after one time to live, the lease counts as lost: the next registration either succeeds or reports the error.
If etcd does not answer, the thread keeps trying.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

import grpc
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.errors import EtcdError, EtcdRejected, classify
from kafscale.storage.etcd.pool import AUTHENTICATE, LEASE_KEEPALIVE, serialize
from kafscale.storage.etcd.transport import Access
from kafscale.storage.system import monotonic_s

LEASE_TTL_S = 8
KEEPALIVE_S = 2.0
LOOP_SILENCE_MAX_S = 4.0
TRY_TIMEOUT_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of the keepalive; shorter ones only in tests."""

    ttl_s: int = LEASE_TTL_S
    interval_s: float = KEEPALIVE_S
    silence_max_s: float = LOOP_SILENCE_MAX_S


WAIT: Final = None
"""The step of a keepalive that waits for one interval."""
Step = int | None
"""WAIT, or the number of the endpoint that is asked to renew the lease."""


class Keepalive(ABC):
    """Calls `on_lost(lease)` once, if the lease does not exist any more or etcd refuses for too long."""

    def __init__(self, access: Access, lease: int, on_lost: Callable[[int], None], pace: Pace) -> None:
        self._access = access
        self._lease = lease
        self._on_lost = on_lost
        self._pace = pace
        self._ticked = monotonic_s()
        self._endpoint = 0
        self.renewed_at_s = monotonic_s()
        """Monotonic time at which the last successful keepalive was sent."""
        self.skipped = 0
        """Keepalives that were not sent because the event loop was silent."""

    def tick(self) -> None:
        """The event loop calls it while it runs."""
        self._ticked = monotonic_s()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Returns at once; what runs ends within TRY_TIMEOUT_S."""

    @abstractmethod
    def join(self, timeout_s: float) -> None: ...

    def steps(self) -> Generator[Step, int | EtcdError | None, None]:
        """What to do, step by step; ends when the lease is lost. The answer to WAIT is None; that to an endpoint is
        the remaining seconds, or the failure."""
        while True:
            yield WAIT
            if monotonic_s() - self._ticked > self._pace.silence_max_s:
                self.skipped += 1
            elif not (yield from self._renew()):
                return

    def _renew(self) -> Generator[Step, int | EtcdError | None, bool]:
        """Tries each endpoint once. Returns False if the lease is lost; after another failure it tries again later."""
        refused = False
        for _ in self._access.endpoints:
            sent_at_s = monotonic_s()
            answer = yield self._endpoint
            if isinstance(answer, int):
                if answer > 0:
                    self.renewed_at_s = sent_at_s
                return answer > 0
            refused |= isinstance(answer, EtcdRejected)
            self._endpoint = (self._endpoint + 1) % len(self._access.endpoints)
        return not refused or monotonic_s() - self.renewed_at_s <= self._pace.ttl_s


class KeepaliveThread(Keepalive):
    def __init__(self, access: Access, lease: int, on_lost: Callable[[int], None], pace: Pace) -> None:
        super().__init__(access, lease, on_lost, pace)
        self._stop = threading.Event()
        self._token: str | None = None
        self._channel: grpc.Channel | None = None
        self._thread = threading.Thread(target=self._run, name="etcd-keepalive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        steps = self.steps()
        try:
            step = next(steps)
            while True:
                if step is not WAIT:
                    step = steps.send(self._ask())
                elif self._stop.wait(self._pace.interval_s):
                    return
                else:
                    step = steps.send(None)
        except StopIteration:
            self._on_lost(self._lease)
        finally:
            self._disconnect()

    def _ask(self) -> int | EtcdError:
        """Asks the endpoint of this step."""
        try:
            return self._keepalive(self._connection())
        except grpc.RpcError as error:
            failure = self._classified(error)
        except EtcdRejected as refused:  # no password could be read
            failure = refused
        if isinstance(failure, EtcdRejected):
            self._token = None
        self._disconnect()
        return failure

    def _classified(self, error: grpc.RpcError) -> EtcdError:
        assert isinstance(error, grpc.Call)
        return classify(error.code(), error.details() or "", self._access.endpoints[self._endpoint].target)

    def _connection(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = self._access.thread_channel(self._access.endpoints[self._endpoint])
        return self._channel

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _keepalive(self, channel: grpc.Channel) -> int:
        if self._access.user and self._token is None:
            self._token = self._authenticate(channel)
        metadata: tuple[tuple[str, str], ...] = (("hasleader", "true"),)
        if self._token is not None:
            metadata += (("token", self._token),)
        stream = channel.stream_stream(
            LEASE_KEEPALIVE.path,
            request_serializer=serialize,
            response_deserializer=LEASE_KEEPALIVE.answer.FromString,
        )
        answered = threading.Event()
        # A single endpoint has no failover: wait for its connection instead.
        alone = len(self._access.endpoints) == 1
        answers = stream(
            self._request(answered), timeout=TRY_TIMEOUT_S, metadata=metadata, wait_for_ready=alone
        )
        try:
            for answer in answers:
                return int(answer.TTL)
        finally:
            answered.set()
            answers.cancel()
        return LEASE_TTL_S  # the stream ended without an answer: try again later

    def _request(self, answered: threading.Event) -> Iterator[pb.LeaseKeepAliveRequest]:
        yield pb.LeaseKeepAliveRequest(ID=self._lease)
        answered.wait(TRY_TIMEOUT_S)

    def _authenticate(self, channel: grpc.Channel) -> str | None:
        """A token; None if authentication is disabled in etcd."""
        *others, last = self._access.passwords.to_try()
        for password in others:
            try:
                return self._login(channel, password)
            except grpc.RpcError as error:
                failure = self._classified(error)
                if not (isinstance(failure, EtcdRejected) and failure.is_wrong_password):
                    raise
        return self._login(channel, last)

    def _login(self, channel: grpc.Channel, password: str) -> str | None:
        call = channel.unary_unary(
            AUTHENTICATE.path,
            request_serializer=serialize,
            response_deserializer=AUTHENTICATE.answer.FromString,
        )
        request = pb.AuthenticateRequest(name=self._access.user or "", password=password)
        try:
            token: str = call(request, timeout=TRY_TIMEOUT_S).token
        except grpc.RpcError as error:
            failure = self._classified(error)
            if isinstance(failure, EtcdRejected) and failure.is_without_users:
                return None
            raise
        self._access.passwords.accepted(password)
        return token

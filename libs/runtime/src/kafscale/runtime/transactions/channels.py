"""Channels to the live instances of a role, for calls with one answer.

Laws: a channel is made at the first call, and lives as long as its instance is registered. When the registration is
gone, nothing new is sent; open calls have a short grace period for answers that are on their way, and then fail. A
channel whose connection failed is replaced, so that the next one uses the certificate of that time; meanwhile calls
fail at once. Every call has a deadline, and is sent at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog
from kafscale.runtime.grpc_identity import Dial, DialRole
from kafscale.runtime.stream.options import (
    CHANNEL_OPTIONS,
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    keepalive,
)
from kafscale.runtime.tracing import traced
from kafscale.runtime.transactions.methods import CALL_BYTES_MAX, TRACEPARENT, A, MalformedMessage, Method, Q
from kafscale.storage.backoff import Backoff
from kafscale.storage.membership.records import Instance

log = structlog.get_logger("kafscale.transactions")

Call = grpc.aio.UnaryUnaryCall[bytes, bytes]
RETIRED_GRACE_S: Final = 0.5
CONNECT_TIMEOUT_MS: Final = 2_000
REST_FIRST_MS: Final = 50
REST_MAX_MS: Final = 1_000
_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    *keepalive(KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS),
    # gRPC takes this one for the time limit of TCP connect and TLS handshake (grpc #12830).
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
)


class CallFailed(Exception):
    """No answer in time, no such instance, or a refusal. The call may have been carried out, unless `why` says that the
    service refused it: so the caller asks again, or treats the outcome as unknown."""

    def __init__(self, method: str, instance: str, why: str) -> None:
        super().__init__(f"{method} to {instance}: {why}")
        self.method = method
        self.instance = instance
        self.why = why


class Live(Protocol):
    """What the channels need of storage's LiveView."""

    def instances(self) -> tuple[Instance, ...]: ...

    def by_id(self, instance_id: str) -> Instance | None: ...

    def by_node(self, node_id: int) -> Instance | None: ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]: ...


class Channels:
    """To the instances of one role. Close it at the end."""

    def __init__(
        self,
        live: Live,
        dial: DialRole,
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`begin` owns the tasks that end channels."""
        self.live = live
        self._dial = dial
        self._begin = begin
        self._lines: dict[str, _Line] = {}
        self._unsubscribe = live.subscribe(self._changed)

    async def call(self, instance_id: str, method: Method[Q, A], request: Q, *, timeout_s: float) -> A:
        """Raises CallFailed."""
        instance = self.live.by_id(instance_id)
        if instance is None:
            raise CallFailed(method.name, instance_id, "it is not registered")
        line = self._lines.get(instance_id)
        if line is None:
            line = self._lines[instance_id] = _Line(instance, self._dial(instance.role))
        with traced(f"call {method.name}", {"kafscale.instance": instance_id}, kind="client") as span:
            traceparent = None if span is None else span.traceparent
            return await line.call(method, request, timeout_s, traceparent)

    async def close(self) -> None:
        """Ends the open calls. Idempotent."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.close()

    def _changed(self) -> None:
        gone = [
            instance_id
            for instance_id, line in self._lines.items()
            if (found := self.live.by_id(instance_id)) is None or found.address != line.instance.address
        ]
        for instance_id in gone:
            self._begin(_retire(self._lines.pop(instance_id)))


@dataclass(slots=True, eq=False)
class _Open:
    channel: grpc.aio.Channel
    calls: set[Call] = field(default_factory=set)


class _Line:
    """One instance. `_open` is the channel of the next call; others of `_opens` end with their last call."""

    def __init__(self, instance: Instance, dial: Dial) -> None:
        self.instance = instance
        self._dial = dial
        self._open: _Open | None = None
        self._opens: set[_Open] = set()
        self._backoff = Backoff(first_ms=REST_FIRST_MS, cap_ms=REST_MAX_MS)
        self._rests_until_s = 0.0
        self._why_down = ""

    async def call(self, method: Method[Q, A], request: Q, timeout_s: float, traceparent: str | None) -> A:
        data = request.SerializeToString()
        if len(data) > CALL_BYTES_MAX:
            raise self._failed(method, f"the request has {len(data)} bytes; {CALL_BYTES_MAX} are allowed")
        if asyncio.get_running_loop().time() < self._rests_until_s:
            raise self._failed(method, f"unreachable: {self._why_down}")
        try:
            return method.decode_reply(await self._ask(method, data, timeout_s, traceparent))
        except MalformedMessage as error:
            raise self._failed(method, str(error)) from error

    async def _ask(
        self, method: Method[Q, A], data: bytes, timeout_s: float, traceparent: str | None
    ) -> bytes:
        here = asyncio.current_task()
        assert here is not None, "a coroutine runs in a task"
        cancels, opened = here.cancelling(), self._opened()
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = opened.channel.unary_unary(method.path)
        metadata = None if traceparent is None else ((TRACEPARENT, traceparent),)
        call: Call = ask(data, timeout=timeout_s, metadata=metadata)
        opened.calls.add(call)
        try:
            answer: bytes = await call
        except grpc.aio.AioRpcError as error:
            self._judge(opened, error)
            raise self._failed(method, f"{error.code().name}: {error.details()}") from error
        except asyncio.CancelledError:
            if here.cancelling() > cancels:
                raise
            # The call was cancelled, and not the task.
            raise self._failed(method, "the channel was closed") from None
        finally:
            opened.calls.discard(call)
            if opened is not self._open and not opened.calls:
                await self._end(opened)
        self._backoff.reset()
        return answer

    def _opened(self) -> _Open:
        if self._open is None:
            self._open = _Open(self._dial(self.instance.address, _OPTIONS))
            self._opens.add(self._open)
        return self._open

    def _judge(self, opened: _Open, error: grpc.aio.AioRpcError) -> None:
        """A service that refuses has the same status as a connection that failed. The channel knows."""
        if (
            error.code() is not grpc.StatusCode.UNAVAILABLE
            or opened is not self._open
            or opened.channel.get_state() is grpc.ChannelConnectivity.READY
        ):
            return
        self._open = None
        self._why_down = error.details() or "connection failed"
        self._rests_until_s = asyncio.get_running_loop().time() + self._backoff.next_s()
        log.warning("backend unreachable", target=self.instance.address, reason=self._why_down)

    def _failed(self, method: Method[Q, A], why: str) -> CallFailed:
        return CallFailed(method.name, self.instance.id, why)

    async def _end(self, opened: _Open) -> None:
        if opened in self._opens:
            self._opens.discard(opened)
            await opened.channel.close()

    async def close(self) -> None:
        self._open = None
        for opened in tuple(self._opens):
            for call in opened.calls:
                call.cancel()
            await self._end(opened)


async def _retire(line: _Line) -> None:
    try:
        await asyncio.sleep(RETIRED_GRACE_S)
    finally:
        await line.close()


def _nothing() -> None:
    return None

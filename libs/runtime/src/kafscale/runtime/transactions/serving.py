"""The serving end of the calls: what a service has to provide, and the gRPC methods in front of it.

Laws: a caller that may not call a method is refused before its message is read. A refusal is a gRPC status, and says
that nothing was carried out, except INTERNAL and DEADLINE_EXCEEDED: then the outcome is unknown. Every call has a
deadline, and at most so many run at once; a call beyond is refused and never queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog
from kafscale.rpc.v1.transactions_pb2 import (
    EndReply,
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
)
from kafscale.runtime.grpc_identity import roles_of
from kafscale.runtime.tracing import Tracer, served
from kafscale.runtime.transactions.methods import (
    CALL_BYTES_MAX,
    END,
    JOIN,
    OVER,
    TRACEPARENT,
    A,
    MalformedMessage,
    Method,
    Q,
)

log = structlog.get_logger("kafscale.transactions")

Context = grpc.aio.ServicerContext[bytes, bytes]
Serve = Callable[[Any], Awaitable[Any]]
METHODS: Final[tuple[Method[Any, Any], ...]] = (JOIN, OVER, END)


class ServesJoins(Protocol):
    """Of a coordinator. A call may be cancelled at any await: its caller has left, or its deadline is over."""

    async def join(self, request: JoinRequest) -> JoinReply: ...

    async def over(self, request: OverRequest) -> OverReply: ...


class ServesEnds(Protocol):
    """Of produce for partitions, and of a coordinator for groups. A call may be cancelled at any await."""

    async def end(self, request: EndRequest) -> EndReply: ...


class TransactionServer:
    """The methods in one process. Each answers UNAVAILABLE until the service is offered, and UNIMPLEMENTED if the
    service does not have it."""

    def __init__(self) -> None:
        self.checks_roles = False
        """Whether a caller has to show the certificate of a role that may call the method."""
        self.tracer: Tracer | None = None
        self._serves: Mapping[str, Serve] | None = None
        self._running: Counter[str] = Counter()

    def add_to(self, server: grpc.aio.Server) -> None:
        """A message is the bytes that were sent: they are decoded after the caller is known."""
        for method in METHODS:
            served: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
                partial(self._serve, method)
            )
            handler = grpc.method_handlers_generic_handler(method.service, {method.name: served})
            server.add_generic_rpc_handlers((handler,))

    def offer(self, joins: ServesJoins | None, ends: ServesEnds | None) -> None:
        serves: dict[str, Serve] = {}
        if joins is not None:
            serves |= {JOIN.path: joins.join, OVER.path: joins.over}
        if ends is not None:
            serves |= {END.path: ends.end}
        self._serves = serves

    async def _serve(self, method: Method[Q, A], data: bytes, context: Context) -> bytes:
        if self.checks_roles:
            await _require_role(method, context)
        serve = await self._found(method, context)
        if self._running[method.path] >= method.at_once_max:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{method.at_once_max} calls are served already"
            )
        if len(data) > CALL_BYTES_MAX:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"{len(data)} bytes; {CALL_BYTES_MAX} are allowed"
            )
        try:
            request = method.decode_request(data)
        except MalformedMessage as error:
            log.error("call refused: malformed", method=method.name, peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._running[method.path] += 1
        try:
            with served(self.tracer, _traceparent(context), method.name):
                reply: A = await _in_time(method, serve(request), context)
        finally:
            self._running[method.path] -= 1
        return reply.SerializeToString()

    async def _found(self, method: Method[Q, A], context: Context) -> Serve:
        if self._serves is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the service is not built yet")
        serve = self._serves.get(method.path)
        if serve is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this service has no {method.name}")
        return serve


def _traceparent(context: Context) -> str | None:
    found = dict(context.invocation_metadata() or ()).get(TRACEPARENT)
    return found if isinstance(found, str) else None


async def _in_time(method: Method[Q, A], serving: Awaitable[A], context: Context) -> A:
    left_s = context.time_remaining()
    longest_s = method.longest_s if left_s is None else min(left_s, method.longest_s)
    limit = asyncio.timeout(longest_s)
    try:
        async with limit:
            return await serving
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"not answered within {longest_s:.1f} s")
        log.exception("call failed", method=method.name, peer=context.peer())
        await context.abort(grpc.StatusCode.INTERNAL, "the handler failed")
        raise AssertionError("abort raises") from error


async def _require_role(method: Method[Q, A], context: Context) -> None:
    roles = roles_of(context.auth_context())
    if not roles & method.callers:
        shown = ", ".join(sorted(roles)) or "no role"
        allowed = " or ".join(sorted(method.callers))
        log.warning("call refused", method=method.name, peer=context.peer(), certificate=shown)
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED, f"{method.name} takes {allowed}; the certificate shows {shown}"
        )

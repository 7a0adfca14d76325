"""Sends a whole request to one instance of a service, and the reply to the client, unread.

Laws: a request that an instance may have executed goes to another one only if it is repeatable. Without an
instance a request waits for one, at most `WAIT_MS_MAX` and never past its deadline; then the client gets the code on
which it retries. An instance that cannot be reached is such a wait too: it may be about to listen. A request whose
instance was lost with it goes to at most one other (`LOSSES_MAX`), since the request itself may end instances. A
request or an answer that is too large for a stream is refused and never repeated. Once a part of an answer was passed
on, the request is not repeated and gets no other answer: if the rest does not come, the connection ends within the
answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

from kafscale.frontdoor.access import DoorAccess, LateAnswer
from kafscale.frontdoor.api import Forward, Refuse
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import AckedRevision, Exchange
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.client import PendingReply
from kafscale.runtime.stream.frame import Outcome, Reply, ReplyPart, ReplyStatus
from kafscale.runtime.stream.options import Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode

WAIT_MS_MAX: Final = 3_000
RETRY_S: Final = 0.05
LOSSES_MAX: Final = 2
OnReply = Callable[[Exchange, Reply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarder:
    """What all forwarded requests share."""

    routing: Routing
    clock: Clock
    acked: AckedRevision
    tasks: asyncio.TaskGroup
    access: DoorAccess | None

    def forward(
        self,
        exchange: Exchange,
        how: Forward,
        *,
        choose: Callable[[], Channel | None] | None = None,
        on_reply: OnReply | None = None,
        body: Sequence[Buffer] | None = None,
        refuse: Refuse | None = None,
    ) -> None:
        """`body`: what the service gets instead of the client's own bytes. `refuse`: in place of the API's own.
        `on_reply` sees a whole reply before it is passed on, and may answer the exchange itself."""
        if choose is None:
            choose = partial(self.routing.control, exchange.caller, exchange.api.backend)
        call = exchange.call = Forwarded(
            self, exchange, how, choose, on_reply, body or [exchange.request.body], refuse
        )
        call.attempt()


@dataclass(slots=True, eq=False)
class Forwarded:
    """One request under way."""

    _from: Forwarder
    _exchange: Exchange
    _how: Forward
    _choose: Callable[[], Channel | None]
    _on_reply: OnReply | None
    _body: Sequence[Buffer]
    _refuse_with: Refuse | None
    _begun: bool = False
    _losses: int = 0
    _tried: Channel | None = None
    _failed: list[Channel] = field(default_factory=list)
    _pending: PendingReply | None = None
    _timer: asyncio.TimerHandle | None = None

    def attempt(self) -> None:
        self._timer = None
        exchange, how, api = self._exchange, self._how, self._exchange.api
        channel = self._choose()
        if channel in self._failed:
            channel = self._from.routing.pool(api.backend).another(self._failed) or channel
        if channel is None or self._losses >= LOSSES_MAX:
            self._wait()
            return
        revision = self._from.acked.commits.value if how.carries_revision else 0
        starts = self._from.acked.log_starts.value if how.carries_revision else 0
        meta = exchange.meta(now_ms=self._from.clock.now_ms(), revision=revision, log_start_revision=starts)
        self._tried = channel
        pending = self._pending = channel.send(api, exchange.span, meta, self._body)
        if api.stream is Stream.CONTROL:
            pending.admits = exchange.admits
        if how.cut_through and exchange.usage is None:
            pending.parts = self._pass_on
        future = pending.future
        if future.done():
            self._take(future)
        else:
            future.add_done_callback(self._take)

    def _wait(self) -> None:
        """Waits for an instance to appear: a client that is refused at once only retries in a loop."""
        exchange = self._exchange
        until_ms = min(exchange.began_ms + WAIT_MS_MAX, exchange.deadline_ms)
        if self._from.clock.now_ms() >= until_ms or self._losses >= LOSSES_MAX:
            self._refuse(self._how.unavailable)
            return
        self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.attempt)

    def _take(self, future: "asyncio.Future[Reply]") -> None:
        self._pending = None
        if future.cancelled() or not self._exchange.unanswered:
            return
        reply, how = future.result(), self._how
        if self._begun:
            self._exchange.break_off(reply.reason or reply.status.name)
            return
        match reply.status.outcome:
            case Outcome.ANSWERED:
                if how.moves_log_starts:
                    self._from.acked.log_starts.saw(reply.revision)
                if self._on_reply is not None:
                    self._on_reply(self._exchange, reply)
                self._answer([reply.body])
            case Outcome.NOT_EXECUTED if reply.status is ReplyStatus.EXPIRED:
                self._refuse(how.unavailable)
            case Outcome.NOT_EXECUTED:
                self._try_another()
            case Outcome.UNKNOWN:
                self._unknown(reply.status)
            case Outcome.TOO_LARGE:
                self._refuse(ErrorCode.INVALID_REQUEST)
            case _ as never:
                assert_never(never)

    def _pass_on(self, part: ReplyPart) -> None:
        self._begun = True
        self._exchange.answer_part(part.reply.body, size=part.size, left_bytes=part.left_bytes)

    def _answer(self, body: Sequence[Buffer]) -> None:
        access, exchange = self._from.access, self._exchange
        if self._how.changes_access and access is not None:
            exchange.call = LateAnswer(exchange, body, access, self._from.tasks)
        else:
            exchange.answer(body)

    def _unknown(self, status: ReplyStatus) -> None:
        if not self._how.repeatable:
            self._refuse(self._how.unknown)
        elif status is ReplyStatus.LOST:
            self._losses += 1
            self._try_another()
        else:
            self._refuse(self._how.unavailable)

    def _try_another(self) -> None:
        """Tries another instance: at once if one has not failed yet, else after a pause."""
        assert self._tried is not None, "something was tried"
        self._failed.append(self._tried)
        self._exchange.caller.controls.pop(self._exchange.api.backend, None)
        if self._from.routing.pool(self._exchange.api.backend).another(self._failed) is not None:
            self.attempt()
        else:
            self._wait()

    def _refuse(self, code: ErrorCode) -> None:
        refuse_exchange(self._exchange, code, self._refuse_with)

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pending is not None:
            self._pending.cancel()

    def expire(self) -> None:
        sent = self._pending is not None
        self.abandon()
        how = self._how
        if self._begun:
            self._exchange.break_off("the rest did not come in time")
            return
        self._refuse(how.unknown if sent and not how.repeatable else how.unavailable)

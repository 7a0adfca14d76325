"""One exchange, and one or several service instances that are each asked once for it.

Laws: nothing is held and nothing is sent a second time, whatever becomes of it. What did not come back in
time, or was lost behind the first byte, may have been done: it is LOST, and the client decides what to do.
When the client leaves, every question that is open is withdrawn at its service.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import assert_never

from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.routes import Stream
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.client import BackendLost, PendingReply
from kafscale.runtime.stream.frame import Reply, ReplyStatus
from kafscale.wire.buffers import Buffer


class Failure(Enum):
    UNSENT = auto()  # certainly not done
    LOST = auto()  # nobody knows
    TOO_LARGE = auto()  # the question or its answer: the same again fails again


Outcome = memoryview | Failure


@dataclass(frozen=True, slots=True)
class Question:
    channel: Channel
    body: Sequence[Buffer]


Then = Callable[[Sequence[Outcome]], None]


def ask_once(exchange: Exchange, clock: Clock, questions: Sequence[Question], then: Then) -> None:
    """Calls `then` with the outcomes, in the order of the questions, unless the client has left before."""
    asking = Asking(exchange, questions, then)
    exchange.call = asking
    asking.start(clock.now_ms())


class Asking:
    """Questions under way."""

    __slots__ = ("_exchange", "_open", "_outcomes", "_questions", "_then")

    def __init__(self, exchange: Exchange, questions: Sequence[Question], then: Then) -> None:
        assert questions, "somebody is asked"
        self._exchange = exchange
        self._questions = questions
        self._then = then
        self._open: dict[int, PendingReply] = {}
        self._outcomes: list[Outcome] = [Failure.LOST] * len(questions)

    def start(self, now_ms: int) -> None:
        meta = self._exchange.meta(now_ms=now_ms)
        for place, question in enumerate(self._questions):
            pending = self._open[place] = question.channel.send(Stream.CONTROL, meta, question.body)
            pending.admits = self._exchange.admits
        for place, pending in self._open.items():
            pending.future.add_done_callback(partial(self._replied, place))

    def _replied(self, place: int, future: "asyncio.Future[Reply]") -> None:
        if self._open.pop(place, None) is None or not self._exchange.unanswered:
            return
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            self._outcomes[place] = Failure.LOST
        elif error is None:
            self._outcomes[place] = outcome_of(future.result())
        elif isinstance(error, BackendLost):
            self._outcomes[place] = Failure.LOST if error.sent else Failure.UNSENT
        else:
            raise error
        if not self._open:
            self._then(self._outcomes)

    def abandon(self) -> None:
        pending, self._open = self._open, {}
        for one in pending.values():
            one.cancel()

    def expire(self) -> None:
        self.abandon()
        self._then(self._outcomes)


def outcome_of(reply: Reply) -> Outcome:
    match reply.status:
        case ReplyStatus.FINAL | ReplyStatus.NOT_OWNER:
            return reply.body
        case ReplyStatus.FAILED:
            return Failure.LOST
        case ReplyStatus.EXPIRED | ReplyStatus.REFUSED | ReplyStatus.NO_REPLY:
            return Failure.UNSENT
        case ReplyStatus.TOO_LARGE:
            return Failure.TOO_LARGE
        case _ as never:
            assert_never(never)

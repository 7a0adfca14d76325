"""Sends one request, or a share of it, to each of several service instances once, and collects their replies.

Laws: the front door holds nothing and sends nothing a second time. A share without a reply in time may have been
executed, so its outcome is UNKNOWN, and the client decides what to do. When the client leaves, every open share is
cancelled at its service.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.client import PendingReply
from kafscale.runtime.stream.frame import Reply, ReplyStatus
from kafscale.wire.buffers import Buffer


@dataclass(frozen=True, slots=True)
class Share:
    """What one instance gets."""

    channel: Channel
    body: Sequence[Buffer]


Then = Callable[[Sequence[Reply]], None]
NO_REPLY_YET: Final = Reply(ReplyStatus.LOST, reason="no reply in time")


def fan_out(exchange: Exchange, clock: Clock, shares: Sequence[Share], then: Then) -> None:
    """Calls `then` with the replies, in the order of the shares, unless the client has left before."""
    call = exchange.call = FanOut(exchange, shares, then)
    call.start(clock.now_ms())


class FanOut:
    """The shares of one exchange under way."""

    __slots__ = ("_exchange", "_open", "_replies", "_shares", "_then")

    def __init__(self, exchange: Exchange, shares: Sequence[Share], then: Then) -> None:
        assert shares, "at least one instance is asked"
        self._exchange = exchange
        self._shares = shares
        self._then = then
        self._open: dict[int, PendingReply] = {}
        self._replies: list[Reply] = [NO_REPLY_YET] * len(shares)

    def start(self, now_ms: int) -> None:
        exchange = self._exchange
        meta = exchange.meta(now_ms=now_ms)
        for place, share in enumerate(self._shares):
            pending = self._open[place] = share.channel.send(exchange.api, exchange.span, meta, share.body)
            pending.admits = exchange.admits
        for place, pending in self._open.items():
            pending.future.add_done_callback(partial(self._replied, place))

    def _replied(self, place: int, future: "asyncio.Future[Reply]") -> None:
        if self._open.pop(place, None) is None or not self._exchange.unanswered:
            return
        if not future.cancelled():
            self._replies[place] = future.result()
        if not self._open:
            self._then(self._replies)

    def abandon(self) -> None:
        pending, self._open = self._open, {}
        for one in pending.values():
            one.cancel()

    def expire(self) -> None:
        self.abandon()
        self._then(self._replies)

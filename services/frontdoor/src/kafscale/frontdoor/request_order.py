"""Which requests of one connection wait for earlier ones, and when they may start. Pure.

Kafka handles one request of a connection at a time. Here many are under way, at several services. Laws: a request that
reads starts when every earlier request of its connection that writes the same area is answered. So it carries the
revisions of their answers, and sees what they wrote. A request that changes topics, configs, rights, log starts or
whole groups starts when every earlier request is answered; connection.py parses nothing behind it before it is answered
itself. No other request waits: Produce requests have their lanes, group calls the order of their stream, Fetches their
turns. So no request waits longer than on a broker of Kafka.
A read waits for a Produce to any partition. To compare partitions, the front door would have to decode every Fetch, and
a Fetch in a session does not name its partitions.

A request waits only for earlier ones, so there is no cycle. Each of those has a deadline, and that of a request that
waits begins when it starts. A connection has at most `Limits.requests_max` requests, those that wait included.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kafscale.frontdoor.api import Api
from kafscale.frontdoor.connection import Request


class Ordered(Protocol):
    """A request that may have to wait; exchange.py has it."""

    @property
    def api(self) -> Api: ...

    @property
    def request(self) -> Request: ...

    def wait(self) -> None: ...


E = TypeVar("E", bound=Ordered)


@dataclass(slots=True, eq=False)
class _Waiting(Generic[E]):
    """`left`: the earlier requests that it still waits for."""

    exchange: E
    left: int


class RequestOrder(Generic[E]):
    """The requests of one connection that wait for earlier ones."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[_Waiting[E]] = []

    def holds(self, exchange: E, unanswered: Iterable[E]) -> bool:
        """Whether the request must wait; then `ready` returns it later. `unanswered`: those before it, and itself."""
        left = sum(exchange.api.follows(one.api) for one in unanswered if one is not exchange)
        if left:
            exchange.wait()
            self._waiting.append(_Waiting(exchange, left))
        return left > 0

    def answered(self, exchange: E) -> None:
        """A request of the connection is answered, or done without an answer."""
        for one in self._waiting:
            if one.exchange.request.slot > exchange.request.slot and one.exchange.api.follows(exchange.api):
                one.left -= 1

    def ready(self) -> Sequence[E]:
        """The requests that may start now, in the order of the socket. Each is returned once."""
        if not self._waiting:
            return ()
        ready = [one.exchange for one in self._waiting if not one.left]
        self._waiting = [one for one in self._waiting if one.left]
        return ready

"""A new connection on its way to its listener: what stands between the socket and the client's protocol for a while.

Laws: at most `ARRIVALS_MAX` of one kind wait in a process. The next protocol gets the transport, and then the bytes
that arrived before it, as if the client had connected there.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

ARRIVALS_MAX: Final = 1_000

Peername = tuple[str, int]
Next = Callable[[Peername | None], asyncio.BufferedProtocol]
"""Makes the protocol that takes over. None: the client is the peer of the socket."""


class Arrivals:
    """The connections of one kind that wait in this process."""

    def __init__(self) -> None:
        self._waiting: dict[Arrival, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= ARRIVALS_MAX

    @property
    def oldest(self) -> "Arrival":
        return next(iter(self._waiting))

    def enter(self, arrival: "Arrival") -> None:
        self._waiting[arrival] = None

    def leave(self, arrival: "Arrival") -> None:
        self._waiting.pop(arrival, None)

    def close(self) -> None:
        for arrival in tuple(self._waiting):
            arrival.abort()


class Arrival(asyncio.BufferedProtocol):
    """A subclass reads what it needs, and ends with `hand_over` or `abort`."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False  # the socket is not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Waits until `then` is called, or the connection is lost."""
        self._arrivals.enter(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def hand_over(self, successor: asyncio.BufferedProtocol, early: bytes | memoryview) -> None:
        """`early`: what arrived before it, at most one buffer of it."""
        self._leave()
        transport = self._transport
        assert transport is not None
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if self._paused and self.is_open:
            transport.resume_reading()
        if early and self.is_open:
            memoryview(successor.get_buffer(-1))[: len(early)] = early
            successor.buffer_updated(len(early))

    def make_room(self) -> None:
        """Ends, because a newer connection needs the place."""
        self.abort()

    def abort(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._transport = None

    def _leave(self) -> None:
        self._arrivals.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

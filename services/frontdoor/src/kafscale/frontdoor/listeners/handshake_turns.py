"""Which connections may do their TLS handshake now (`HandshakePlaces`, pure), and the timer that begins those that
waited.

Laws: at most `PLACES` handshakes that are younger than `HOLD_MS` run at a time; the others wait, first come, first
served. A handshake that is older waits for its client, not for us, and gives its place to the next one, so clients that
stop in the middle of a handshake hold up nobody. (They are still bounded, as connections without a request.)
A handshake costs up to a millisecond of the event loop, so the places bound how long connections that are served wait.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from kafscale.runtime.clock import Clock

C = TypeVar("C", bound=Hashable)

PLACES: Final = 64
HOLD_MS: Final = 200


class HandshakePlaces(Generic[C]):
    def __init__(self, places: int = PLACES, hold_ms: int = HOLD_MS) -> None:
        self._places = places
        self._hold_ms = hold_ms
        self._since_ms: dict[C, int] = {}  # those with a place, oldest first
        self._waiting: deque[C] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ask(self, one: C, now_ms: int) -> bool:
        """Whether its handshake may begin. If not, `due` returns it later."""
        self._expire(now_ms)
        if self._waiting or len(self._since_ms) >= self._places:
            self._waiting.append(one)
            return False
        self._since_ms[one] = now_ms
        return True

    def leave(self, one: C) -> None:
        """The handshake or the connection has ended. Does nothing for a connection that never asked."""
        if one in self._since_ms:
            del self._since_ms[one]
        elif one in self._waiting:
            self._waiting.remove(one)

    def due(self, now_ms: int) -> list[C]:
        """The handshakes that waited and may begin now."""
        self._expire(now_ms)
        begun: list[C] = []
        while self._waiting and len(self._since_ms) < self._places:
            one = self._waiting.popleft()
            self._since_ms[one] = now_ms
            begun.append(one)
        return begun

    def _expire(self, now_ms: int) -> None:
        while self._since_ms:
            oldest = next(iter(self._since_ms))
            if now_ms - self._since_ms[oldest] < self._hold_ms:
                return
            del self._since_ms[oldest]


class Waiting(Protocol):
    """A connection whose client has begun a handshake."""

    def __hash__(self) -> int: ...

    def begin(self) -> None:
        """It has a place now."""
        ...


class HandshakeTurns:
    """Begins the handshakes of one process, as many at a time as there are places."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: HandshakePlaces[Waiting] = HandshakePlaces()
        self._timer: asyncio.Handle | None = None
        self._called = False

    def ask(self, one: Waiting) -> bool:
        """Whether it may begin now; if not, its `begin` is called later."""
        may = self._places.ask(one, self._clock.now_ms())
        self._look_again()
        return may

    def leave(self, one: Waiting) -> None:
        self._places.leave(one)
        if self._places.waiting and not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _look_again(self) -> None:
        if self._places.waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_MS / 1000, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        self._begin()

    def _begin(self) -> None:
        self._called = False
        for one in self._places.due(self._clock.now_ms()):
            one.begin()
        self._look_again()

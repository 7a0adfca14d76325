"""Begins TLS handshakes as `handshake_places.py` allows them: the shell around it, one for each process."""

import asyncio
from typing import Protocol

from kafscale.frontdoor.listeners.handshake_places import HOLD_MS, HandshakePlaces
from kafscale.runtime.clock import Clock


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

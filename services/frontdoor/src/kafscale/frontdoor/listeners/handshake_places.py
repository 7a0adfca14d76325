"""Which connections may do their TLS handshake now. Pure.

Laws: at most `places` handshakes that are younger than `hold_ms` run at a time; the others wait, first come, first
served. A handshake that is older waits for its client, not for us, and gives its place to the next one, so clients that
stop in the middle of a handshake hold up nobody. (They are still bounded, as connections without a request.)
A handshake costs up to a millisecond of the event loop, so the places bound how long connections that are served wait.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

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
        """Its handshake has ended, or the connection has. Nothing for one that never asked."""
        if one in self._since_ms:
            del self._since_ms[one]
        elif one in self._waiting:
            self._waiting.remove(one)

    def due(self, now_ms: int) -> list[C]:
        """Those that waited and may begin now."""
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

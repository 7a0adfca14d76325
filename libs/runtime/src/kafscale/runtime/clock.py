"""Time as an injected object: monotonic milliseconds for waits and ages, wall milliseconds for stamps."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic; only differences mean anything."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """Moves only when told: for tests of anything that takes a Clock."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, *, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, delta_ms: int) -> None:
        self._now_ms += delta_ms
        self._wall_ms += delta_ms

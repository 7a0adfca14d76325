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

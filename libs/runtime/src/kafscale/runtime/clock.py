"""Time as an injected object: monotonic milliseconds for waits and ages, wall milliseconds for stamps.

`LoopWatch` measures whether the event loop runs in time. The loop ticks every 100 ms. A late tick is lag. A tick that
is very late means that the process was stopped, swapped out or blocked, and that bytes which are read now may be as old
as the stall.
"""

import asyncio
from typing import Final, Protocol

from kafscale.storage.system import monotonic_ms, wall_ms

TICK_MS: Final = 100
STALL_MS: Final = 500
# After a stall, bytes that came before and during it are still being read for about this long.
CATCH_UP_MS: Final = 500
ALIVE_WITHIN_MS: Final = 10_000


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
        return monotonic_ms()

    def wall_ms(self) -> int:
        return wall_ms()


class LoopWatch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.last_tick_ms = clock.now_ms()
        self.lag_ms = 0
        self.lag_max_ms = 0
        self.stalls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stall_began_ms = 0
        self._stall_ended_ms = -CATCH_UP_MS - 1

    def start(self) -> None:
        """Ticks on the running loop until stop()."""
        self.tick()
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tick(self) -> None:
        now_ms = self._clock.now_ms()
        gap_ms = now_ms - self.last_tick_ms
        self.lag_ms = max(0, gap_ms - TICK_MS)
        self.lag_max_ms = max(self.lag_max_ms, self.lag_ms)
        if gap_ms > STALL_MS:
            self.stalls += 1
            self._stall_began_ms = self.last_tick_ms
            self._stall_ended_ms = now_ms
        self.last_tick_ms = now_ms

    def take_lag_max_ms(self) -> int:
        """The worst lag since the last call."""
        worst_ms, self.lag_max_ms = self.lag_max_ms, self.lag_ms
        return worst_ms

    def stalled_since_ms(self, now_ms: int) -> int | None:
        """The time at which a stall began, if bytes that are read now may have waited since then; else None."""
        if now_ms - self.last_tick_ms > STALL_MS:
            return self.last_tick_ms
        if now_ms - self._stall_ended_ms <= CATCH_UP_MS:
            return self._stall_began_ms
        return None

    def alive(self, now_ms: int) -> bool:
        return now_ms - self.last_tick_ms <= ALIVE_WITHIN_MS

"""Monotonic time without the periods in which this process could not process heartbeats.

Session timeouts use it. While the process is paused, heartbeats wait in the sockets. While it has no etcd, they are
answered with NOT_COORDINATOR. In both cases no member may expire before its next heartbeat is processed. `run` reads
the clock often. A gap between two reads does not count as time, and neither does a period without freshness
(`is_fresh`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafscale.runtime.clock import Clock

LOOK_EVERY_S = 0.5
GAP_MS = 1_500


class RunningClock:
    """`is_fresh`: no other process can consider our lease expired, so answers from memory are valid."""

    def __init__(self, clock: Clock, is_fresh: Callable[[], bool]) -> None:
        self._clock = clock
        self.is_fresh = is_fresh
        self._seen_ms = clock.now_ms()
        self._was_fresh = True
        self._missed_ms = 0

    def now_ms(self) -> int:
        real_ms = self._clock.now_ms()
        gap_ms = real_ms - self._seen_ms
        is_fresh = self.is_fresh()
        if gap_ms > GAP_MS or not (is_fresh and self._was_fresh):
            self._missed_ms += gap_ms
        self._seen_ms, self._was_fresh = real_ms, is_fresh
        return real_ms - self._missed_ms

    def real_ms(self) -> int:
        """Monotonic time with those periods: for the ages of requests."""
        return self._clock.now_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def run(self) -> None:
        while True:
            self.now_ms()
            await asyncio.sleep(LOOK_EVERY_S)

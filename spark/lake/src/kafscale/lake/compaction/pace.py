"""The budget of a round: bytes per second, and time. A round has one, or each executor has one for its part."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable


class Pace:
    """None: no bound. A moment is a reading of `clock`."""

    def __init__(
        self,
        *,
        io_bytes_per_s: int | None,
        within_ms: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = io_bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._paid_until_s = clock()
        self._end_s = math.inf if within_ms is None else clock() + within_ms / 1000

    async def spend(self, count: int) -> None:
        """Waits until the budget covers these bytes. Concurrent callers wait one after another."""
        if self._rate is None:
            return
        self._paid_until_s = max(self._paid_until_s, self._clock()) + count / self._rate
        await self._sleep(self._paid_until_s - self._clock())

    def after(self, share: float, end_s: float = math.inf) -> float:
        """The moment when this share of the time up to `end_s`, or to the end of the round, is used."""
        end_s = min(end_s, self._end_s)
        now_s = self._clock()
        return end_s if math.isinf(end_s) else now_s + max(0.0, end_s - now_s) * share

    def passed(self, moment_s: float) -> bool:
        return self._clock() >= min(moment_s, self._end_s)

"""One timer for a thing that says anew, at each change, when it is due next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Most changes move the due time a little. So an armed timer that is early enough stays; `fired` looks again."""

    __slots__ = ("_due_ms", "_fired", "_timer")

    def __init__(self, fired: Callable[[], None]) -> None:
        self._fired = fired
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def arm(self, due_ms: int, now_ms: int) -> None:
        """Times of the monotonic clock."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._fired()

"""When to leave a cache that fails alone, and when to try it again. Pure: `now_ms` in, yes or no out.

    CLOSED -- FAILURES_MAX in a row --> OPEN -- the wait is over --> HALF_OPEN -- success --> CLOSED
                                          ^----- failure: twice the wait -----'

While half open one call goes through per wait: an outcome that never comes costs a wait and not the cache.
"""

from enum import IntEnum
from typing import Final

FAILURES_MAX: Final = 5
WAIT_FIRST_MS: Final = 500
WAIT_MAX_MS: Final = 30_000


class BreakerState(IntEnum):
    """The numbers are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    __slots__ = ("_failures", "_retry_at_ms", "_wait_ms", "state")

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._wait_ms = WAIT_FIRST_MS
        self._retry_at_ms = 0

    def allow(self, now_ms: int) -> bool:
        """Whether a call may be made now. One that may is to be followed by `succeeded` or `failed`."""
        if self.state is BreakerState.CLOSED:
            return True
        if now_ms < self._retry_at_ms:
            return False
        self.state = BreakerState.HALF_OPEN
        self._retry_at_ms = now_ms + self._wait_ms
        return True

    def succeeded(self) -> None:
        """An outcome that comes late, after the breaker opened, is no news."""
        if self.state is BreakerState.OPEN:
            return
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._wait_ms = WAIT_FIRST_MS

    def failed(self, now_ms: int) -> None:
        match self.state:
            case BreakerState.CLOSED:
                self._failures += 1
                if self._failures >= FAILURES_MAX:
                    self._open(now_ms)
            case BreakerState.HALF_OPEN:
                self._wait_ms = min(2 * self._wait_ms, WAIT_MAX_MS)
                self._open(now_ms)
            case BreakerState.OPEN:
                return

    def _open(self, now_ms: int) -> None:
        self.state = BreakerState.OPEN
        self._failures = 0
        self._retry_at_ms = now_ms + self._wait_ms

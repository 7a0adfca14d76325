"""A circuit breaker: when to stop calling a cache that fails, and when to try again. Pure: the caller passes `now_ms`.

    CLOSED -- FAILURES_MAX in a row --> OPEN -- the wait is over --> HALF_OPEN -- success --> CLOSED
                                          ^----- failure: twice the wait -----'

While it is half open, one call per wait is allowed. If the outcome of that call never arrives, the next wait allows
another.
"""

from enum import IntEnum
from typing import Final

FAILURES_MAX: Final = 5
WAIT_FIRST_MS: Final = 500
WAIT_MAX_MS: Final = 30_000


class CacheUnavailable(Exception):
    """The server did not answer, or not usefully. It may or may not have executed the call."""


class BreakerState(IntEnum):
    """The numbers are the values of the metric."""

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
        """Whether a call may be made now. After an allowed call, report `succeeded` or `failed`."""
        if self.state is BreakerState.CLOSED:
            return True
        if now_ms < self._retry_at_ms:
            return False
        self.state = BreakerState.HALF_OPEN
        self._retry_at_ms = now_ms + self._wait_ms
        return True

    def succeeded(self) -> None:
        """Ignored while the breaker is open: the call began before it opened."""
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

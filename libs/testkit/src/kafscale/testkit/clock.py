"""Time in tests: a clock that a test moves, and an event loop whose time moves only when nothing is left to do.

In that loop an hour of waiting takes no time. It is for shells without sockets and threads. Whatever would wait for a
timer jumps to it, so timeouts fire exactly when they are due and a run gives the same result each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar


class ManualClock:
    """Moves only by `advance`. Implements kafscale.runtime.clock.Clock."""

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


T = TypeVar("T")


class Jumping(selectors.SelectSelector):
    """Waits for nothing: reports how long the loop would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        return ready or self.jump(timeout)

    def jump(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Time passes."""
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no callback is ready and no timer is set")
        self.passed_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's law. Time begins at 1,000 s."""

    selector_kind = Jumping

    def __init__(self) -> None:
        self._jumping = self.selector_kind()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1_000.0 + self._jumping.passed_s


class LoopClock:
    """The clock of the services, in the time of the running loop."""

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms()


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)

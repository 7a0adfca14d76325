"""Whether the event loop runs, and whether the process was stopped for a while.

A tick every 100 ms: late ticks are lag; a tick that is very late means that the process stood still
(stopped, swapped, wedged), and that what is read now may be as old as that.

A loop that never turns again answers nobody, and nothing on it can end the process. So a thread looks at the ticks
(`Watchdog`), and ends the process when there was none for longer than a lease lives: others own its partitions by then.
"""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, Self

import structlog
from kafscale.runtime.clock import Clock
from kafscale.runtime.logs import WRITER
from kafscale.storage.membership.keepalive import LEASE_TTL_S

log = structlog.get_logger("kafscale.process")

TICK_MS: Final = 100
STALL_MS: Final = 500
# After a stall, bytes that came before and during it are still being read for about this long.
CATCH_UP_MS: Final = 500
ALIVE_WITHIN_MS: Final = 10_000
STUCK_AFTER_MS: Final = 1_500 * LEASE_TTL_S
LOOK_EVERY_MS: Final = 500
STUCK_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""


class LoopWatch:
    __slots__ = (
        "_clock",
        "_stall_began_ms",
        "_stall_ended_ms",
        "_timer",
        "lag_max_ms",
        "lag_ms",
        "last_tick_ms",
        "stalls",
    )

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
        """On the running loop, until stop()."""
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
        """When the stall began that what is read now may have waited through."""
        if now_ms - self.last_tick_ms > STALL_MS:
            return self.last_tick_ms
        if now_ms - self._stall_ended_ms <= CATCH_UP_MS:
            return self._stall_began_ms
        return None

    def alive(self, now_ms: int) -> bool:
        return now_ms - self.last_tick_ms <= ALIVE_WITHIN_MS


class Watchdog:
    """Ends the process when the loop of `watch` has not turned for STUCK_AFTER_MS, with the loop's stack in the log.

    Law: only time in which this process ran counts. Its own looks say how much that was, so a process that was
    suspended (SIGSTOP, a frozen container) finds out by itself that its lease is lost, and lives.
    """

    def __init__(self, watch: LoopWatch, clock: Clock, end: Callable[[], None] | None = None) -> None:
        """Made on the thread of the loop; `end` is for tests."""
        self._watch = watch
        self._clock = clock
        self._end = end or self._end_process
        self._loop_thread = threading.get_ident()
        self._over = threading.Event()
        self._looked_ms = clock.now_ms()
        self._tick_ms = watch.last_tick_ms
        self._still_ms = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="kafscale-watchdog", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()

    def is_stuck(self) -> bool:
        """To be asked each LOOK_EVERY_MS."""
        now_ms, tick_ms = self._clock.now_ms(), self._watch.last_tick_ms
        ran_ms = min(now_ms - self._looked_ms, 2 * LOOK_EVERY_MS)
        self._still_ms = self._still_ms + ran_ms if tick_ms == self._tick_ms else 0
        self._looked_ms, self._tick_ms = now_ms, tick_ms
        return self._still_ms > STUCK_AFTER_MS

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_MS / 1000):
            if self.is_stuck():
                self._end()
                return

    def _end_process(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        log.critical(
            "event loop stuck, process ends",
            stuck_ms=self._still_ms,
            exit_code=STUCK_EXIT_CODE,
            stack="" if frame is None else "".join(traceback.format_stack(frame)),
        )
        WRITER.flush()
        os._exit(STUCK_EXIT_CODE)

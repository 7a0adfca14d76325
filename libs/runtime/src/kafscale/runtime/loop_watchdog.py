"""Measures whether the event loop runs, and ends a process whose loop is stuck.

The loop ticks every 100 ms. A late tick is lag. A tick that is very late means that the process was stopped, swapped
out or blocked, and that bytes which are read now may be as old as the stall.

A stuck loop answers no request, and no task on it can end the process. So a thread (`Watchdog`) looks at the ticks. It
ends the process after more than a lease's lifetime without a tick: other instances own its partitions by then.
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


class Watchdog:
    """Ends the process if the loop of `watch` has not ticked for STUCK_AFTER_MS, and logs the loop's stack.

    Law: only time in which this process ran counts. The thread measures that by its own wake-ups. So a process that was
    suspended (SIGSTOP, a frozen container) is not ended; it notices itself that its lease is lost.
    """

    def __init__(self, watch: LoopWatch, clock: Clock, end: Callable[[], None] | None = None) -> None:
        """Construct it on the loop's thread. `end` is for tests."""
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
        """Call it every LOOK_EVERY_MS."""
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
            "event loop stuck",
            stuck_ms=self._still_ms,
            exit_code=STUCK_EXIT_CODE,
            stack="" if frame is None else "".join(traceback.format_stack(frame)),
        )
        WRITER.flush()
        os._exit(STUCK_EXIT_CODE)

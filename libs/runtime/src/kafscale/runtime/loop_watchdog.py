"""Ends a process whose event loop is stuck.

A stuck loop answers no request, and no task on it can end the process. So a thread looks at the ticks of the loop. It
ends the process after more than a lease's lifetime without a tick: other instances own its partitions by then.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, Self

import structlog
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.logs import WRITER
from kafscale.storage.membership.keepalive import LEASE_TTL_S

log = structlog.get_logger("kafscale.process")

STUCK_AFTER_MS: Final = 1_500 * LEASE_TTL_S
LOOK_EVERY_MS: Final = 500
STUCK_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""


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

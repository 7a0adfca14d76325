"""A thread that writes log lines to standard error.

Laws: no caller waits for standard error. Otherwise a log collector that stops reading would stop the event loop, and
the process would lose its lease. At most WAITING_BYTES_MAX wait; a line that does not fit is dropped and counted, and
when there is room again one line gives the number of dropped lines. At exit the waiting lines are written, for at most
FLUSH_S.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WAITING_BYTES_MAX: Final = 1 << 20
FLUSH_S: Final = 2.0
STANDARD_ERROR: Final = 2


class LogWriter:
    """One per process. The thread starts with the first line."""

    def __init__(self, descriptor: int = STANDARD_ERROR, *, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._bytes_max = bytes_max
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._writing = False
        self._unsaid = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped_lines = 0
        self.say_dropped: Callable[[int], None] | None = None
        """Logs the number of dropped lines. The writer's thread calls it."""

    def write(self, line: bytes) -> None:
        with self._changed:
            if self._waiting_bytes + len(line) > self._bytes_max:
                self.dropped_lines += 1
                self._unsaid += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafscale-log", daemon=True)
                self._thread.start()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Waits until all earlier lines are written; False if that takes longer than `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while self._waiting or self._writing:
                if not self._changed.wait(deadline_s - time.monotonic()):
                    return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                lines = b"".join(self._waiting)
                self._waiting.clear()
                self._writing = True
            self._put(lines)
            with self._changed:
                self._waiting_bytes -= len(lines)
                self._writing = False
                unsaid, self._unsaid = self._unsaid, 0
                self._changed.notify_all()
            if unsaid and self.say_dropped is not None:
                self.say_dropped(unsaid)

    def _put(self, lines: bytes) -> None:
        """If standard error is closed, the lines count as dropped."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with self._changed:
                self.dropped_lines += bytes(rest).count(b"\n")

"""Measures how long the disk of this machine stalls. A shared disk may stall for seconds, and etcd with it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY_S = 0.5


class DiskWatch:
    """Writes a byte to a file and syncs it, again and again, from a thread. `stop` it; a second time is nothing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stop = threading.Event()
        self._began: float | None = None
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._run, name="disk-watch", daemon=True)
        self._thread.start()

    @property
    def still_s(self) -> float:
        """The longest sync so far, the one that is under way included."""
        began = self._began
        return max(self._longest_s, 0.0 if began is None else time.monotonic() - began)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._file.open("ab", buffering=0) as disk:
            while not self._stop.wait(EVERY_S):
                self._began = time.monotonic()
                disk.write(b".")
                os.fsync(disk.fileno())
                self._longest_s, self._began = self.still_s, None

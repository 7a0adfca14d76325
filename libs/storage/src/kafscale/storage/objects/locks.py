"""One lock per key, between threads and between processes, in a fixed number of files.

Keys share LOCK_SLOTS slots by hash. A thread lock guards a slot within the process; flock guards it between
processes, and the kernel releases it when its holder dies. Waiting is bounded, because a stopped process may hold a
lock for a long time.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Final

from kafscale.storage.objects.port import StoreUnavailable

LOCK_SLOTS: Final = 1024
_POLL_S: Final = 0.002


class KeyLocks:
    """Locks in `directory`; `wait_s` is the longest wait for one."""

    def __init__(self, directory: str, *, wait_s: float) -> None:
        self._directory = directory
        self._wait_s = wait_s
        self._threads = [threading.Lock() for _ in range(LOCK_SLOTS)]

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Holds the key's lock. Raises StoreUnavailable if it is not free in time."""
        slot = zlib.crc32(key.encode()) % LOCK_SLOTS
        deadline = time.monotonic() + self._wait_s
        if not self._threads[slot].acquire(timeout=self._wait_s):
            raise StoreUnavailable(key, f"its lock was held for {self._wait_s} s")
        try:
            fd = os.open(f"{self._directory}/{slot:03x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._flock(fd, key, deadline)
                yield
            finally:
                os.close(fd)
        finally:
            self._threads[slot].release()

    def _flock(self, fd: int, key: str, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    raise
            else:
                return
            if time.monotonic() >= deadline:
                raise StoreUnavailable(key, f"another process held its lock for {self._wait_s} s")
            time.sleep(_POLL_S)

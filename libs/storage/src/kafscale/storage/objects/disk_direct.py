"""Large bodies past the page cache (O_DIRECT): most of a large PUT's CPU was the copy into it.

O_DIRECT wants aligned memory, offsets and lengths. So bytes are copied into an aligned buffer, a buffer full at a time,
and only whole blocks are written this way, from the front of the file. The caller writes what is left through the page
cache: the rest of the last block; or more, if the kernel wrote less than was asked, no buffer was free, or the file
system refused. So a file never has bytes past its body's end, also not for a moment: its size says how much of it is
there, and a power cut that tears it leaves it shorter than its record.

An fsync is needed as before: for the size, the blocks' place, the record, and the disk's own cache.
"""

import errno
import fcntl
import logging
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Final

log = logging.getLogger(__name__)

DIRECT_BYTES_MIN: Final = 64 << 10
"""A smaller body costs less in the page cache, where the event loop writes it without waiting for the disk."""
BLOCK_BYTES: Final = 4096
"""A multiple of what disks and file systems of today ask for. One that asks for more refuses."""
BUFFER_BYTES: Final = 1 << 20
BUFFERS_MAX: Final = 8
"""Of a store: bodies that are written past the page cache at once."""
_REFUSALS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class DirectWrites:
    """Of one store in `directory`, for all its threads. After the first refusal it takes no body any more."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._free: list[memoryview] = []
        self._made = 0
        self._refused = False

    def takes(self, size: int) -> bool:
        """Whether a body of so many bytes is written past the page cache."""
        return size >= DIRECT_BYTES_MIN and not self._refused

    def write_front(self, fd: int, parts: Sequence[memoryview], size: int) -> int:
        """Writes the first bytes of `parts`, `size` bytes in all, to the start of an empty file.

        Returns how many; the file has exactly these. Raises OSError, as when the disk is full.
        """
        buffer = self._borrow()
        if buffer is None:
            return 0
        try:
            return self._write(fd, _filled(buffer, parts, size - size % BLOCK_BYTES))
        finally:
            self._free.append(buffer)

    def _borrow(self) -> memoryview | None:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._made == BUFFERS_MAX:
                return None
            buffer = mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._made += 1
            return memoryview(buffer)

    def _write(self, fd: int, chunks: Iterator[memoryview]) -> int:
        at = 0
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
            for chunk in chunks:
                written = os.pwrite(fd, chunk, at)
                at += written
                if written < len(chunk):
                    break  # perhaps in the middle of a block
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            self._refuse(error)
        finally:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        return at

    def _refuse(self, error: OSError) -> None:
        with self._lock:
            first, self._refused = not self._refused, True
        if first:
            log.info(
                "large objects go through the page cache: the file system of %s refuses O_DIRECT (%s)",
                self._directory,
                error.strerror,
            )


def _filled(buffer: memoryview, parts: Sequence[memoryview], front: int) -> Iterator[memoryview]:
    """The first `front` bytes of the parts, copied into the buffer, a buffer full at a time."""
    used = 0
    for part in parts:
        start = 0
        while start < len(part) and front:
            count = min(len(part) - start, len(buffer) - used, front)
            buffer[used : used + count] = part[start : start + count]
            used, start, front = used + count, start + count, front - count
            if used == len(buffer) or not front:
                yield buffer[:used]
                used = 0

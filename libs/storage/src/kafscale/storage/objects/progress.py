"""Time limits by progress: a request fails when no byte moved for `stall_s`, however long it takes in all.

A limit on the whole time cuts off every upload of a slow link at once. What was sent is then sent again, and the link
carries the same bytes for ever. There is still an end, which follows from the size: a request may not be slower than
SLOWEST_BYTES_PER_S. The error shows which limit ended it. TimeoutError: nothing moved. TooSlow: bytes moved to the end.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

SLOWEST_BYTES_PER_S: Final = 64 << 10
_LOOKS_PER_STALL: Final = 8
_INT: Final = struct.Struct("i")


class TooSlow(TimeoutError):
    """Bytes moved until the end of the time that the size allows."""


def time_limit_s(size: int, stall_s: float) -> float:
    """The longest that a request with `size` bytes may take while its bytes move."""
    return stall_s + size / SLOWEST_BYTES_PER_S


@asynccontextmanager
async def while_moving(moved: Callable[[], int], *, size: int, stall_s: float) -> AsyncIterator[None]:
    """`moved` gives a number that changes when bytes moved; it is looked at eight times per `stall_s`."""
    watch = _Watch(moved, size, stall_s)
    try:
        async with asyncio.timeout_at(watch.due) as limit:
            watch.begin(limit)
            try:
                yield
            finally:
                watch.end()
    except TimeoutError as error:
        if limit.expired() and watch.is_over:
            raise TooSlow(f"{size} bytes took more than {time_limit_s(size, stall_s):.0f} s") from error
        if limit.expired():
            raise TimeoutError(f"no byte moved for {stall_s:.0f} s") from error
        raise


class _Watch:
    """Puts the end of a timeout off while bytes move."""

    def __init__(self, moved: Callable[[], int], size: int, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._moved = moved
        self._stall_s = stall_s
        self._last = moved()
        self._end = self._loop.time() + time_limit_s(size, stall_s)
        self.due = self._loop.time() + stall_s

    @property
    def is_over(self) -> bool:
        return self.due >= self._end

    def begin(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._look_later()

    def end(self) -> None:
        self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._stall_s / _LOOKS_PER_STALL, self._look)

    def _look(self) -> None:
        if self._limit.expired():
            return
        moved = self._moved()
        if moved != self._last:
            self._last = moved
            self.due = min(self._loop.time() + self._stall_s, self._end)
            self._limit.reschedule(self.due)
        self._look_later()


def unacknowledged(transport: asyncio.WriteTransport) -> int:
    """Bytes given to the transport that the peer's host has not acknowledged.

    The kernel takes megabytes of a connection before it sends them, so what the socket took says nothing about a slow
    link. Linux counts what is not acknowledged (SIOCOUTQ, here by its other name). Where the ioctl is missing, only
    the transport's own buffer counts.
    """
    held = transport.get_write_buffer_size()
    socket = transport.get_extra_info("socket")
    if socket is None:
        return held
    try:
        (queued,) = _INT.unpack(fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    except OSError:
        return held
    return held + int(queued)

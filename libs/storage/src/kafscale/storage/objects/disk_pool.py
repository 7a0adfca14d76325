"""Threads for calls that block on the disk, cheaper than an executor's futures. The event loop never waits for
a disk.

At most `pending_max` calls are queued or running; further callers wait in order. If a caller is cancelled, its call
still runs to the end. The outcome is then unknown to the caller, as after a timeout.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Call:
    """One function call that runs in a thread and returns its result to the loop.

    An exception's traceback holds the frame of `run`, and that holds the call with its arguments. So neither of them
    holds the exception, or the future that has it: that would be a reference cycle.
    """

    __slots__ = ("args", "done", "function", "future", "loop")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], done: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.function = function
        self.args = args
        self.done = done

    def run(self) -> None:
        try:
            result = self.function(*self.args)
        except Exception as error:  # noqa: BLE001 - handed to the caller, who handles it
            self._tell(None, error)
        else:
            self._tell(result, None)

    def _tell(self, result: Any, error: Exception | None) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._finish, result, error)

    def _finish(self, result: Any, error: Exception | None) -> None:
        self.done()
        future = self.future
        del self.future
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class DiskPool:
    """Threads start on demand and end with `close`."""

    def __init__(self, name: str, *, threads: int, pending_max: int) -> None:
        self._name = name
        self._size = threads
        self._slots = asyncio.Semaphore(pending_max)
        self._pending_max = pending_max
        self._pending = 0
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def pending(self) -> int:
        """Calls that are queued or running."""
        return self._pending

    @property
    def full(self) -> bool:
        """Whether `run` would wait; `post` must not be called then."""
        return self._pending >= self._pending_max

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Runs the function in a thread. Returns its result or raises its exception."""
        async with self._slots:
            return await self.post(function, *args)

    def post(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """The same without waiting for capacity: the function certainly runs."""
        call = _Call(function, args, self._done)
        self._pending += 1
        if self._pending > len(self._threads) < self._size:
            self._start()
        self._calls.put(call)
        return call.future

    def _done(self) -> None:
        self._pending -= 1

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()

    async def close(self) -> None:
        """Waits for the running calls, then ends the threads."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            await asyncio.to_thread(thread.join)

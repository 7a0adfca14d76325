"""Opens record batches beside the event loop: in one thread, a piece of work at a time.

A thread that runs Python blocks the loop as much as the loop itself would. What a batch holds is known only after it
was opened: a few kilobytes may hold millions of records. So work on records is a generator that stops often (`Steps`).
A piece of it runs for PIECE_S or one step, whichever is longer. Then the loop runs, and then the work that has waited
longest. A lane limits how much work is under way at a time, as each holds in memory what it has opened, and how long
one work may take in all, with its wait. A lane for large work rests after each piece: one turn of the loop for each
piece would be all that a request gets that needs many turns.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic

from kafscale.storage.system import monotonic_s
from kafscale.wire.buffers import Steps, T

PIECE_S: Final = 0.003
"""Less than the interval after which Python takes the interpreter from a thread that others wait for."""


class OutOfTime(Exception):
    """The work was not done by its deadline: it was too much, or others used the thread."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    value: T


class BatchThread:
    """One thread, for one event loop."""

    def __init__(self, *, now_s: Callable[[], float] = monotonic_s) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._turn = asyncio.Lock()  # first come, first served
        self._now_s = now_s
        self.pieces = 0

    async def finish(self, work: Steps[T], *, rest_s: float = 0) -> T:
        """Returns the work's result; raises what it raises. A cancelled caller leaves at most one piece to be done.
        `rest_s`: the pause after each piece."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._turn:
                self.pieces += 1
                done = await loop.run_in_executor(self._executor, self._piece, work)
            if done is not None:
                return done.value
            if rest_s:
                await asyncio.sleep(rest_s)

    def _piece(self, work: Steps[T]) -> _Done[T] | None:
        end_s = self._now_s() + PIECE_S
        try:
            next(work)
            while self._now_s() < end_s:
                next(work)
        except StopIteration as done:
            return _Done(done.value)
        return None


class Lane:
    """Work of one kind: at most `at_once` under way, the rest waits in line. `rests`: as long as it has worked."""

    def __init__(self, thread: BatchThread, *, at_once: int, rests: bool = False) -> None:
        self._thread = thread
        self._rest_s = PIECE_S if rests else 0.0
        self._places = asyncio.Semaphore(at_once)

    async def finish(self, work: Steps[T], *, until_s: float) -> T:
        """Raises OutOfTime at `until_s` of the loop's clock, and what the work raises."""
        try:
            async with asyncio.timeout_at(until_s), self._places:
                return await self._thread.finish(work, rest_s=self._rest_s)
        except TimeoutError:
            raise OutOfTime from None

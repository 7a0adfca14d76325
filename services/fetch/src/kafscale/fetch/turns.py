"""Opening batches beside the event loop: in one thread, in pieces, each piece of work in its turn.

A thread that runs Python keeps the loop from running as much as the loop itself would, and what a batch holds is
known only when it was opened: a few kilobytes may hold millions of records. So work on records is a generator that
stops often (`Steps`); a piece of it runs for PIECE_S or one step, whichever is longer, then the loop has its turn, and
then the work that waits longest has the thread. A lane bounds how many are under way at a time, as each holds what it
has opened in memory, and how long one may take in all, its waiting included.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic

from kafscale.wire.buffers import Steps, T

PIECE_S: Final = 0.003
"""Less than the interval after which Python takes the interpreter from a thread that others wait for."""


class OutOfTime(Exception):
    """The work was not done by its deadline: it was too much, or too many others had their turns."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    value: T


class Turns:
    """The thread, for one event loop."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._turn = asyncio.Lock()  # first come, first served
        self._now_s = now_s
        self.pieces = 0

    async def finish(self, work: Steps[T]) -> T:
        """What the work comes to; raises what it raises. A cancelled caller leaves at most one piece to be done."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._turn:
                self.pieces += 1
                done = await loop.run_in_executor(self._thread, self._piece, work)
            if done is not None:
                return done.value

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
    """Work of one kind: `at_once` of it have turns, the rest waits in line."""

    def __init__(self, turns: Turns, *, at_once: int) -> None:
        self._turns = turns
        self._places = asyncio.Semaphore(at_once)

    async def finish(self, work: Steps[T], *, until_s: float) -> T:
        """Raises OutOfTime at `until_s` of the loop's clock, and what the work raises."""
        try:
            async with asyncio.timeout_at(until_s), self._places:
                return await self._turns.finish(work)
        except TimeoutError:
            raise OutOfTime from None

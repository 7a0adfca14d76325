"""Requests to append whose records must be opened first (`log.contents`), in their order and outside the event loop.

The law: what the records of one client cost is paid by requests of the same kind. Codecs work in threads of their own;
what Python has to look at is done in pieces, one for each turn of the loop (`pieces`). Record sets that hold little if
they are open (nearly all) have many places, those that may hold as much as `wire.compression` lets out of a batch have
one: so memory is bounded, and what is small does not wait behind what is large. A request that is given up, by its
client or by its deadline, is opened no further.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from kafscale.produce.log.contents import Contents, Opening, opened
from kafscale.produce.log.model import Rejection
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.pieces import Pieces
from kafscale.produce.requests import Request
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.wire.errors import ErrorCode

T = TypeVar("T")

LITTLE_BYTES_MAX = 1 << 20
"""What comes out of a record set that is opened in one of the many places."""
LITTLE_AT_ONCE_MAX = 16
LARGE_AT_ONCE_MAX = 1
THREADS = LARGE_AT_ONCE_MAX + 1
LINE_MAX = 1_000
"""Requests that wait for one partition; each is in the memory budget, this bounds their number."""

NO_PLACE = Contents(Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "Too many batches wait to be opened."))


class Opener:
    """Shared by the partitions of an instance."""

    def __init__(self, pieces: Pieces, budget: MemoryBudget, clock: Clock) -> None:
        self._pieces = pieces
        self._budget = budget
        self._clock = clock
        self._little = asyncio.Semaphore(LITTLE_AT_ONCE_MAX)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE_MAX)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="opener")

    async def open_all(
        self, line: deque[Request], writer: PartitionWriter, feed: Callable[[Request, Contents | None], None]
    ) -> None:
        """Feeds a partition's requests in their order until the line is empty; more may come meanwhile.

        One stays in the line while it is opened. What came before the config changed only waits for the order.
        """
        while line:
            await asyncio.sleep(0)
            if not line:
                return  # the writer stopped meanwhile, and all were refused
            request, found = line[0], None
            if not self._given_up(request):
                opening = writer.opens(request.records, request.caller.zstd_allowed)
                if opening is not None:
                    found = await self._open(opening, request)
                    if not line:
                        return
            line.popleft()
            feed(request, found)

    async def _open(self, opening: Opening, request: Request) -> Contents | None:
        """None: it was given up."""
        if opening.is_small:
            return opened(opening)
        async with self._little:
            if self._given_up(request):
                return None
            if await self._in_thread(partial(opening.unpack, LITTLE_BYTES_MAX)):
                return await self._finish(opening, request)
        async with self._large:
            if self._given_up(request):
                return None
            await self._in_thread(opening.unpack)
            return await self._finish(opening, request)

    async def _finish(self, opening: Opening, request: Request) -> Contents | None:
        held = opening.bytes_held
        self._budget.force(held)
        try:
            await self._pieces.run(self._while_wanted(opening.steps(), request))
            if self._given_up(request):
                return None
            await self._in_thread(opening.pack)
            return opening.contents()
        finally:
            self._budget.release(held)

    def _while_wanted(self, steps: Iterator[None], request: Request) -> Iterator[None]:
        for _ in steps:
            if self._given_up(request):
                return
            yield

    def _given_up(self, request: Request) -> bool:
        return request.given_up(self._clock.now_ms())

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

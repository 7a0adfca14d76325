"""Requests to append, and their records opened beside the event loop where the topic wants them read first.

Small ones are read here, a turn of the loop for each; the others in a thread, few at a time, because each may
hold as many bytes as `wire.compression` lets out of a batch. What waits is bounded by admission, and is answered
in its turn when its deadline has passed. Nothing is decided here: see `log.contents`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafscale.produce.log import contents
from kafscale.produce.log.contents import Contents
from kafscale.produce.log.model import Reply
from kafscale.produce.log.writer import PartitionWriter

OPENED_AT_ONCE_MAX = 2
"""Of the whole instance."""


class Waiter(Protocol):
    """A request that waits for the answers of its partitions; `slot` names one of them."""

    def settle(self, slot: int, reply: Reply) -> None: ...

    @property
    def abandoned(self) -> bool: ...  # nobody reads the answer any more


class Request(NamedTuple):
    """An append that is not answered yet."""

    token: int
    waiter: Waiter
    slot: int
    records: memoryview | None
    deadline_ms: int
    zstd_allowed: bool


class Opener:
    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(OPENED_AT_ONCE_MAX)

    async def open_all(
        self, line: deque[Request], writer: PartitionWriter, feed: Callable[[Request, Contents | None], None]
    ) -> None:
        """Feeds a partition's requests in their order until the line is empty; more may come meanwhile.

        One stays in the line while it is read. What came before the config changed only waits for the order.
        """
        while line:
            request, found = line[0], None
            if writer.opens_records and request.records and not request.waiter.abandoned:
                found = await self._read(request.records)
                if not line:
                    return  # the writer stopped meanwhile, and all were refused
            line.popleft()
            feed(request, found)

    async def _read(self, record_set: memoryview) -> Contents:
        if contents.is_small(record_set):
            await asyncio.sleep(0)
            return contents.read(record_set)
        async with self._slots:
            return await asyncio.to_thread(contents.read, record_set)

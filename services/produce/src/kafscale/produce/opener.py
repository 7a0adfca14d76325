"""The queues in which requests to append wait while their records are opened, outside the event loop and in order.

The law: the cost of opening one client's records is paid by requests of the same kind. Codecs work in threads of their
own; what Python has to look at is done in pieces, one for each turn of the loop (`pieces`). Record sets that hold
little if they are open (nearly all) have many places. Those that hold more have few, and those that may hold as much
as `wire.compression` lets out of a batch have one: so memory is bounded, and what is small does not wait behind what
is large. A request that is given up, by its client or by its deadline, is opened no further.

Before Produce v3, message sets are converted to batches first, in a separate queue (`ConversionLine`). Converting
opens every record, so it runs in a thread. One request is converted at a time, and all enter their partitions in the
order in which they came. What waits is bounded by admission, which counts these requests CONVERTED_COPIES times; what
comes out of one set's wrappers by the codec. All messages were read here, so those batches are not opened again for
their sizes and times. A set may hold batches (magic 2) even so: as in Kafka, they are taken in any version. Both in
one set is INVALID_RECORD.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from kafscale.produce.log.contents import Contents, Opening
from kafscale.produce.log.model import Rejection, Reply
from kafscale.produce.pieces import Pieces
from kafscale.produce.requests import Request
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import batches_of, is_message_set
from kafscale.wire.schema.produce import ProduceRequest

CONVERTED_COPIES = 2
"""The bytes that came and the batches made of them are held together."""


class Converted(NamedTuple):
    """The slots (partitions in the request's order) whose records are batches now, and those that were refused."""

    done: Set[int] = frozenset()
    refused: Mapping[int, Reply] = MappingProxyType({})


class _Waiting(NamedTuple):
    message: ProduceRequest
    wanted: Callable[[], bool]
    enter: Callable[[Converted | None], None]


class ConversionLine:
    """See the module's law."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._line: deque[_Waiting] = deque()
        self._running = False

    def __len__(self) -> int:
        return len(self._line)

    def add(
        self,
        message: ProduceRequest,
        wanted: Callable[[], bool],
        enter: Callable[[Converted | None], None],
    ) -> None:
        """`enter` is called once, in turn: with what became of `message`, or None if it was not `wanted`."""
        self._line.append(_Waiting(message, wanted, enter))
        if not self._running:
            self._running = True
            self._tasks.create_task(self._convert())

    async def _convert(self) -> None:
        while self._line:
            waiting = self._line.popleft()
            converted = await asyncio.to_thread(convert, waiting.message) if waiting.wanted() else None
            waiting.enter(converted)
        self._running = False


def convert(message: ProduceRequest) -> Converted:
    """Puts batches in the place of each partition's message set; what cannot be converted stays as it is."""
    done: set[int] = set()
    refused: dict[int, Reply] = {}
    slot = 0
    for topic in message.topic_data:
        for part in topic.partition_data:
            records = part.records
            assert records is None or isinstance(records, memoryview), "decoded records are one view"
            if records is not None and is_message_set(records):
                try:
                    part.records = memoryview(batches_of(records))
                    done.add(slot)
                except WireError as wrong:
                    refused[slot] = Reply(token=0, error=wrong.code, message=str(wrong))
            slot += 1
    return Converted(done, refused)


T = TypeVar("T")

PLACES: Final = ((1 << 20, 16), (8 << 20, 4), (DECOMPRESSED_BYTES_MAX, 1))
"""(bytes, places): so many record sets are open at once of which at most so much comes out. One that holds more than
its bytes say is opened again in the next kind."""
THREADS: Final = 2
TURN_S: Final = 0.01
NOTICED_S: Final = 0.000_05
"""A shorter opening costs no more than the rest of an append."""
LINE_MAX = 1_000
"""Requests that wait for one partition; each is in the memory budget, this bounds their number."""

NO_PLACE = Contents(Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "Too many batches wait to be opened."))


class Turn:
    """The time that light record sets may take of one turn of the event loop, all together: a request may bring a
    thousand of them, for as many partitions. The others are opened like heavy ones."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    @property
    def has_time(self) -> bool:
        return self._spent_s <= TURN_S

    def spent(self, seconds: float) -> None:
        if seconds < NOTICED_S:
            return
        if not self._spent_s:
            asyncio.get_running_loop().call_soon(self._ends)
        self._spent_s += seconds

    def _ends(self) -> None:
        self._spent_s = 0.0


class Opener:
    """Shared by the partitions of an instance."""

    def __init__(self, pieces: Pieces, budget: MemoryBudget, clock: Clock) -> None:
        self._pieces = pieces
        self._budget = budget
        self._clock = clock
        self.turn = Turn()
        self._places = [(bytes_max, asyncio.Semaphore(count)) for bytes_max, count in PLACES]
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="opener")

    async def open_all(
        self,
        line: deque[Request],
        first: Opening,
        opens: Callable[[Request], Contents | Opening | None],
        feed: Callable[[Request, Contents | None], None],
    ) -> None:
        """Feeds a partition's requests in their order until the line is empty; more may come meanwhile. `first` is
        what is to be opened of the first one.

        A request stays in the line while it is opened. What came before the config changed only waits for the order.
        """
        found: Contents | Opening | None = first
        while line:
            await asyncio.sleep(0)
            if not line:
                return  # the writer stopped meanwhile, and all were refused
            request = line[0]
            if self._given_up(request):
                found = None
            elif found is None:
                found = opens(request)
            if isinstance(found, Opening):
                found = await self._open(found, request)
                if not line:
                    return
            line.popleft()
            feed(request, found)
            found = None

    async def _open(self, opening: Opening, request: Request) -> Contents | None:
        """None: it was given up."""
        for bytes_max, place in self._places:
            async with place:
                if self._given_up(request):
                    return None
                if await self._in_thread(opening, partial(opening.unpack, bytes_max)):
                    return await self._finish(opening, request)
        raise AssertionError("the last kind of place takes everything")

    async def _finish(self, opening: Opening, request: Request) -> Contents | None:
        held = opening.bytes_held
        self._budget.force(held)
        try:
            await self._pieces.run(self._while_wanted(opening.steps(), request))
            if self._given_up(request):
                return None
            await self._in_thread(opening, opening.pack)
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

    async def _in_thread(self, opening: Opening, work: Callable[[], T]) -> T:
        """Where no codec has work, a thread would only cost time."""
        if not opening.has_codec:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

"""The line in which requests of Produce 0-2 wait while their message sets are made batches of.

Converting opens every record, so it runs in a thread and the event loop keeps its turns. One request is converted at
a time, and all enter their partitions in the order in which they came: within a connection's lane none passes another.
What waits is bounded by admission, which counts these requests CONVERTED_COPIES times; what comes out of one
set's wrappers by the codec. A request whose client has stopped waiting, or whose deadline has passed, is not
converted. Everything behind this line sees record batches only. All messages were read here, so those batches are not
opened again for their sizes and times.

A set may hold batches (magic 2) even so: as Kafka does, we take them in any version. Both in one set is
INVALID_RECORD.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from kafscale.produce.log.model import Reply
from kafscale.wire.errors import WireError
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

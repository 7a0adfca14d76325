"""Fetch 0-3: what was read is told as message sets, magic 0 up to v1 and magic 1 from v2 on.

Telling opens every record, so it runs in a thread and the event loop keeps its turns. There is one such thread in a
process: one partition is told at a time, also when clients leave, and a request waits for its turn as long as its
client does. An answer of these versions holds at most
TOLD_BYTES_MAX, except that of each partition that is told the first batch goes whole (see `message_sets_of`): told, a
batch may be many times as large as stored, and a reader must get on. These versions have no isolation level: they
read what is not committed too, as they do from Kafka.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kafscale.fetch.plan import Cut, ResponseLimit
from kafscale.fetch.reader import NOTHING, Ask
from kafscale.wire.errors import WireError
from kafscale.wire.message_sets import message_sets_of

BATCHES_FROM: Final = 4
MAGIC_1_FROM: Final = 2
TOLD_BYTES_MAX: Final = 16 << 20
"""Converted bytes are copies, which no cache counts."""


class Teller:
    """See the module's law."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="old-formats")

    async def tell(self, asks: Sequence[Ask], version: int, max_bytes: int) -> None:
        """Replaces the cut of each ask; what cannot be told is in its spot's error."""
        magic = 1 if version >= MAGIC_1_FROM else 0
        left = ResponseLimit(max_bytes)
        for ask in asks:
            if not ask.spot.readable or not ask.cut.size:
                continue
            if left.exhausted:
                ask.cut = NOTHING
                continue
            await self._tell_one(ask, magic, left.allow(ask.max_bytes))
            left.take(ask.cut.size)

    async def _tell_one(self, ask: Ask, magic: int, bytes_max: int) -> None:
        cut, ask.cut = ask.cut, NOTHING
        work = partial(message_sets_of, cut.parts, magic, from_offset=ask.offset, bytes_max=bytes_max)
        try:
            sets = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except WireError as untold:
            ask.spot.error = untold.code
            return
        parts = tuple(memoryview(each) for each in sets)
        ask.cut = Cut(parts=parts, size=sum(map(len, parts)), next_offset=cut.next_offset)

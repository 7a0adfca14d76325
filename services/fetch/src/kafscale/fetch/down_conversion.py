"""Fetch 0-3: converts batches to message sets, magic 0 up to v1 and magic 1 from v2 on.

The conversion opens every record, so it runs beside the event loop (`batch_thread.py`). There are two lanes. In the
ordinary one a batch may hold ORDINARY_BYTES and an answer ORDINARY_RECORDS. What holds more is converted in the large
lane, one batch at a time in the process. So a batch that holds a thousand times its own size delays only others of its
kind, which wait LARGE_WAIT_S at most and are then answered NOT_LEADER_OR_FOLLOWER. Ordinary readers wait for pieces of
it and never for the whole. An ordinary request waits at most ORDINARY_WAIT_S, if its client waits so long.

An answer of these versions holds at most CONVERTED_BYTES_MAX. The first batch of each partition is the exception:
it is answered whole (see `message_sets_of`), although it may be many times as large as stored, because a reader must
make progress.
These versions have no isolation level: they also read what is not committed, as they do from Kafka.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kafscale.fetch.batch_thread import BatchThread, Lane, OutOfTime
from kafscale.fetch.plan import Cut, ResponseLimit
from kafscale.fetch.reader import NOTHING, PartitionRead
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import message_sets_of

BATCHES_FROM: Final = 4
MAGIC_1_FROM: Final = 2
CONVERTED_BYTES_MAX: Final = 16 << 20
"""Converted bytes are copies, which no cache counts."""
ORDINARY_BYTES: Final = 4 << 20
ORDINARY_RECORDS: Final = 50_000
ORDINARY_AT_ONCE: Final = 4
ORDINARY_WAIT_S: Final = 300.0
LARGE_WAIT_S: Final = 20.0


class DownConverter:
    """The lanes of the module's law."""

    def __init__(self, thread: BatchThread) -> None:
        self._ordinary = Lane(thread, at_once=ORDINARY_AT_ONCE)
        self._large = Lane(thread, at_once=1)

    async def convert(self, asks: Sequence[PartitionRead], version: int, max_bytes: int) -> None:
        """Replaces the cut of each ask; a failure is in its spot's error."""
        magic = 1 if version >= MAGIC_1_FROM else 0
        left = ResponseLimit(max_bytes)
        for ask in asks:
            if not ask.spot.readable or not ask.cut.size:
                continue
            if left.exhausted:
                ask.cut = NOTHING
                continue
            await self._convert_one(ask, magic, left.allow(ask.max_bytes))
            left.take(ask.cut.size)

    async def _convert_one(self, ask: PartitionRead, magic: int, bytes_max: int) -> None:
        cut, ask.cut = ask.cut, NOTHING
        try:
            sets = await self._sets(cut, magic, ask.offset, bytes_max)
        except WireError as refused:
            ask.spot.error = refused.code
            return
        except OutOfTime:
            ask.spot.error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients know this code and ask again
            return
        parts = tuple(memoryview(each) for each in sets)
        ask.cut = Cut(parts=parts, size=sum(map(len, parts)), next_offset=cut.next_offset)

    async def _sets(self, cut: Cut, magic: int, offset: int, bytes_max: int) -> list[bytes]:
        now_s = asyncio.get_running_loop().time()
        ordinary = message_sets_of(
            cut.parts,
            magic,
            from_offset=offset,
            bytes_max=bytes_max,
            opened_bytes_max=ORDINARY_BYTES,
            records_max=ORDINARY_RECORDS,
        )
        try:
            return await self._ordinary.finish(ordinary, until_s=now_s + ORDINARY_WAIT_S)
        except WireError as refused:
            if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
        large = message_sets_of(cut.parts, magic, from_offset=offset, bytes_max=0)
        return await self._large.finish(large, until_s=now_s + LARGE_WAIT_S)

"""Fetch 0-3: what was read is told as message sets, magic 0 up to v1 and magic 1 from v2 on.

Telling opens every record, so it is done beside the event loop, in turns (`turns.py`). There are two lanes. In the
ordinary one a batch may hold ORDINARY_BYTES and an answer ORDINARY_RECORDS; what holds more is told in the large lane,
one batch at a time in the process. So a batch that holds a thousand times its own size delays only others of its kind,
which wait LARGE_WAIT_S at most and are then answered NOT_LEADER_OR_FOLLOWER; ordinary readers wait for pieces of it
and never for the whole. An ordinary request waits ORDINARY_WAIT_S for its turn, if its client waits so long.
An answer of these versions holds at most TOLD_BYTES_MAX, except that of each partition that is told the first batch
goes whole (see `message_sets_of`): told, a batch may be many times as large as stored, and a reader must get on. These
versions have no isolation level: they read what is not committed too, as they do from Kafka.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kafscale.fetch.plan import Cut, ResponseLimit
from kafscale.fetch.reader import NOTHING, Ask
from kafscale.fetch.turns import Lane, OutOfTime, Turns
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import message_sets_of

BATCHES_FROM: Final = 4
MAGIC_1_FROM: Final = 2
TOLD_BYTES_MAX: Final = 16 << 20
"""Converted bytes are copies, which no cache counts."""
ORDINARY_BYTES: Final = 4 << 20
ORDINARY_RECORDS: Final = 50_000
ORDINARY_AT_ONCE: Final = 4
ORDINARY_WAIT_S: Final = 300.0
LARGE_WAIT_S: Final = 20.0


class Teller:
    """See the module's law."""

    def __init__(self, turns: Turns) -> None:
        self._ordinary = Lane(turns, at_once=ORDINARY_AT_ONCE)
        self._large = Lane(turns, at_once=1)

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
        try:
            sets = await self._sets(cut, magic, ask.offset, bytes_max)
        except WireError as untold:
            ask.spot.error = untold.code
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

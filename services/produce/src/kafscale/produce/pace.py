"""The PUTs of an instance: each waits for its place, and then has its time limit. `log.put_limit` decides.

    async with pace.place(size):
        etag = await store.put(...)

Every PUT of an instance passes here: segments and indexes, and what checkpoints, merges and settling write. The wait
does not count as time of the PUT: its limit begins with its place. A wait ends, because each PUT in flight has such a
limit. It ends with a place, or with StoreUnavailable if the store answers nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from kafscale.produce.log.put_limit import LOCAL_PUTS_MAX, Outcome, Place, PutBounds, PutLimit, Rank, Turn
from kafscale.runtime.clock import Clock
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    Metadata,
    ObjectStore,
    StoreError,
    StoreSlow,
    StoreUnavailable,
)
from kafscale.storage.objects.progress import time_limit_s

PUTS_FIRST = 8
STALL_S = 20.0
"""The store gives up a PUT that rests, after a shorter time. This limit is for a store that does not notice."""

Spanned = Callable[[], AbstractContextManager[None]]
"""Entered around each request of a PUT, without its wait for a place."""


def put_bounds(store: ObjectStore, puts_max: int | None) -> PutBounds:
    """A local store has no link that PUTs share: its bound is out of reach, from the start.

    More PUTs than the connections carry would wait for one within their time limit.
    """
    is_local = store.puts_at_once_max is None
    carried = store.puts_at_once_max or LOCAL_PUTS_MAX
    most = min(puts_max or carried, carried)
    return PutBounds(puts_first=most if is_local else min(PUTS_FIRST, most), puts_max=most)


def put_time_limit_s(size: int) -> float:
    return time_limit_s(size, STALL_S)


class Pace:
    """See the module's law."""

    def __init__(self, store: ObjectStore, clock: Clock, *, puts_max: int | None = None) -> None:
        self.limit = PutLimit(put_bounds(store, puts_max))
        self._store = store
        self._clock = clock
        self._turns: dict[Place, asyncio.Future[bool]] = {}  # of those that wait: whether they begin
        self.sent = 0
        """PUTs that were sent, and whose outcome is known or was waited for in vain."""
        self.unknown = 0
        """Those of them without an answer."""

    @asynccontextmanager
    async def place(self, size: int, rank: Rank = Rank.NORMAL) -> AsyncIterator[Place]:
        """A place for a PUT of `size` bytes. How the block ends is the outcome that the limit learns from."""
        place = await self._begun(size, rank)
        outcome = Outcome.DROPPED
        try:
            yield place
            outcome = Outcome.STORED
        except StoreSlow:
            outcome = Outcome.SLOW
            raise
        except (StoreUnavailable, TimeoutError):
            outcome = Outcome.LOST
            raise
        except StoreError:
            outcome = Outcome.ANSWERED
            raise
        finally:
            self.sent += outcome is not Outcome.DROPPED
            self.unknown += outcome in (Outcome.SLOW, Outcome.LOST)
            self._take(self.limit.finish(place, outcome, self._clock.now_ms()))

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition,
        metadata: Metadata = NO_METADATA,
        rank: Rank = Rank.NORMAL,
    ) -> str:
        """A whole PUT, with its place and its time limit. Returns the etag. Raises StoreError or TimeoutError."""
        size = sum(map(len, body))
        async with self.place(size, rank), asyncio.timeout(put_time_limit_s(size)):
            return await self._store.put(key, body, condition=condition, metadata=metadata)

    async def _begun(self, size: int, rank: Rank) -> Place:
        place = self.limit.ask(size, self._clock.now_ms(), rank)
        if not place.waits:
            return place
        turn = self._turns[place] = asyncio.get_running_loop().create_future()
        try:
            begins = await turn
        except asyncio.CancelledError:
            self._forget(place)
            raise
        if not begins:
            raise StoreUnavailable("", "the store answers no PUT")
        return place

    def _forget(self, place: Place) -> None:
        """Its task was cancelled, while it waited or in the moment in which it began."""
        now_ms = self._clock.now_ms()
        if not place.waits:
            self._take(self.limit.finish(place, Outcome.DROPPED, now_ms))
        elif self._turns.pop(place, None) is not None:
            self._take(self.limit.leave(place, now_ms))

    def _take(self, turn: Turn) -> None:
        self._answer(turn.begun, True)
        self._answer(turn.turned_away, False)

    def _answer(self, places: Iterable[Place], begins: bool) -> None:
        for place in places:
            waiting = self._turns.pop(place)
            if not waiting.done():  # its task may have been cancelled just now
                waiting.set_result(begins)


class Wait:
    """How long a PUT waited for its place while the store answered others."""

    __slots__ = ("_asked_ms", "_pace", "begun_ms")

    def __init__(self, asked_ms: int, pace: Pace) -> None:
        self._asked_ms = asked_ms
        self._pace = pace
        self.begun_ms: int | None = None  # None: it never got a place

    @property
    def ms(self) -> int:
        until_ms = self._pace.limit.answered_ms if self.begun_ms is None else self.begun_ms
        return max(0, until_ms - self._asked_ms)

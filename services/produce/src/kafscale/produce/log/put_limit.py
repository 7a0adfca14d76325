"""How many PUTs of an instance are in flight: the whole decision. Pure; all times are mono_ms.

All PUTs of an instance share the link to the store. Too many of them at once make each one slow, and those that reach
their time limit were sent for nothing. So a PUT needs a place, and the number of places adapts:

- A limit bounds the PUTs in flight, and `bytes_per_put` times the limit bounds their bytes. A PUT that is larger than
  this goes alone.
- Places are given in the order of asking within a rank. PUTs that commits of the whole partition wait for are served
  first, and those that no acknowledgement waits for are served last. But one place of BEHIND_EVERY is theirs if they
  wait: slices that nobody settles would make tails longer and longer.
- The limit rises by one for each limit's worth of stored PUTs, while it holds PUTs back and no PUT in flight is older
  than BRISK_MS. Smaller PUTs do not raise it for SLOW_MEMORY_MS after a larger one was slow, as they show nothing.
- The limit is halved when a PUT gets no answer or was too slow, but never falls below one. PUTs that were in flight at
  that time belong to the same overload and do not halve it again.
- A PUT that hangs alone does not halve the limit. If a number of PUTs share a link fairly, and the link stored that
  number of times the bytes of one of them since it began, then it would have stored that one as well.
- If a PUT gets no answer, and no other PUT was answered since it began, the store is away. Then all waiting PUTs are
  turned away, so that each partition learns of it in time.

Other modules bound the waiting PUTs: a partition has at most two for each segment of its pipeline, and the memory
budget holds their bytes since the requests arrived.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

BRISK_MS = 5_000
"""Half of the time that a PUT may rest: with more PUTs in flight, some would come close to it."""
SLOW_MEMORY_MS = 60_000
BEHIND_EVERY = 4
LOCAL_PUTS_MAX = 1_024
"""For a store without a network, more than a DiskPool takes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBounds:
    puts_first: int  # the limit at the start
    puts_max: int
    bytes_per_put: int = 8 << 20  # a full segment of 4 MiB, and the large request that filled it


class Outcome(Enum):
    STORED = auto()
    ANSWERED = auto()  # the store refused it: it is there, and nothing was stored
    SLOW = auto()  # its bytes moved until its time was over
    LOST = auto()  # no answer: a timeout, a lost connection, an overloaded store
    DROPPED = auto()  # not sent, or cancelled here: says nothing about the store


class Rank(IntEnum):
    """In the order of serving."""

    AHEAD = auto()  # what checkpoints write: all later commits of the partition wait for it
    NORMAL = auto()  # bundles and segments of flushes: acknowledgements wait for them
    BEHIND = auto()  # settled segments and merged manifests


@dataclass(eq=False, slots=True)
class Place:
    """One PUT, waiting or in flight."""

    size: int
    rank: Rank = Rank.NORMAL
    number: int = 0  # in the order of beginning; 0: it waits
    begun_ms: int = 0
    stored_before: int = 0  # bytes that were stored or in flight when it began

    @property
    def waits(self) -> bool:
        return not self.number


@dataclass(frozen=True, slots=True)
class Turn:
    """What a change means to waiting PUTs."""

    begun: tuple[Place, ...] = ()
    turned_away: tuple[Place, ...] = ()


class PutLimit:
    """See the module's law."""

    def __init__(self, bounds: PutBounds) -> None:
        assert 1 <= bounds.puts_first <= bounds.puts_max, bounds
        self._bounds = bounds
        self._limit = float(bounds.puts_first)
        self._waiting = {rank: deque[Place]() for rank in Rank}
        self._before_behind = 0  # PUTs that went before one of rank BEHIND that waits
        self._begun = 0  # PUTs, ever
        self._begun_at_halving = 0
        self._begun_at_answer = 0
        self._stored_bytes = 0
        self._slow_size = 0  # of the largest PUT that was slow lately
        self._slow_until_ms = 0
        self.answered_ms = 0  # when the store last showed that it is there
        self._in_flight: dict[Place, None] = {}  # in the order of beginning
        self.bytes = 0  # in flight
        self.halved = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    @property
    def puts(self) -> int:
        """In flight."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    # --- what happens ------------------------------------------------------------------------

    def ask(self, size: int, now_ms: int, rank: Rank = Rank.NORMAL) -> Place:
        """A place that has begun, or one that waits until a Turn names it."""
        place = Place(size, rank)
        self._waiting[rank].append(place)
        self._begin_next(now_ms)
        return place

    def leave(self, place: Place, now_ms: int) -> Turn:
        """A waiting PUT is not wanted any more."""
        self._waiting[place.rank].remove(place)
        return Turn(begun=self._begin_next(now_ms))

    def finish(self, place: Place, outcome: Outcome, now_ms: int) -> Turn:
        """A PUT that had begun has ended."""
        if outcome is Outcome.STORED:
            self._grow(place, now_ms)
            self._stored_bytes += place.size
        elif outcome in (Outcome.SLOW, Outcome.LOST):
            self._shrink(place)
        if outcome in (Outcome.STORED, Outcome.ANSWERED, Outcome.SLOW):
            self._begun_at_answer = self._begun
            self.answered_ms = now_ms
        del self._in_flight[place]
        self.bytes -= place.size
        if outcome is Outcome.LOST and place.number > self._begun_at_answer:
            return Turn(turned_away=self._turn_away())
        return Turn(begun=self._begin_next(now_ms))

    # --- the decision ------------------------------------------------------------------------

    def _grow(self, place: Place, now_ms: int) -> None:
        if now_ms - place.begun_ms > BRISK_MS:
            self._slow_size = max(self._slow_size, place.size)
            self._slow_until_ms = now_ms + SLOW_MEMORY_MS
        oldest = next(iter(self._in_flight))
        if now_ms - oldest.begun_ms > BRISK_MS:
            return
        if place.size < self._slow_size and now_ms < self._slow_until_ms:
            return
        self._slow_size = 0
        if self.waiting or self.puts >= self.limit:
            self._limit = min(self._limit + 1 / self._limit, self._bounds.puts_max)

    def _shrink(self, place: Place) -> None:
        if place.number <= self._begun_at_halving or self._hangs(place):
            return
        self._limit = max(self._limit / 2, 1.0)
        self._begun_at_halving = self._begun
        self.halved += 1

    def _hangs(self, place: Place) -> bool:
        """Whether the link stored its share and more of PUTs that began later."""
        return self._stored_bytes - place.stored_before > self.puts * place.size

    def _begin_next(self, now_ms: int) -> tuple[Place, ...]:
        begun: list[Place] = []
        while queue := self._next():
            if not self._fits(queue[0]):
                break
            begun.append(self._begin(queue.popleft(), now_ms))
        return tuple(begun)

    def _next(self) -> deque[Place] | None:
        """The queue whose first PUT is next."""
        if self._waiting[Rank.BEHIND] and self._before_behind >= BEHIND_EVERY - 1:
            return self._waiting[Rank.BEHIND]
        return next((queue for queue in self._waiting.values() if queue), None)

    def _fits(self, place: Place) -> bool:
        if not self.puts:
            return True
        bytes_max = self.limit * self._bounds.bytes_per_put
        return self.puts < self.limit and self.bytes + place.size <= bytes_max

    def _begin(self, place: Place, now_ms: int) -> Place:
        self._begun += 1
        waits = place.rank is not Rank.BEHIND and self._waiting[Rank.BEHIND]
        self._before_behind = self._before_behind + 1 if waits else 0
        place.number = self._begun
        place.begun_ms = now_ms
        place.stored_before = self._stored_bytes + self.bytes
        self._in_flight[place] = None
        self.bytes += place.size
        return place

    def _turn_away(self) -> tuple[Place, ...]:
        turned = tuple(place for queue in self._waiting.values() for place in queue)
        for queue in self._waiting.values():
            queue.clear()
        return turned

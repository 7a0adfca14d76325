"""The memory of a front door: how connections share it for requests, and for answers until their clients have taken
them. Pure: it decides which connections are read and which are closed.

Requests. Only bytes that have arrived count, never the announced size. A connection that holds little (`SMALL_BYTES`)
and one that holds much draw on separate parts, so that large requests never keep small ones from being read. When the
part for large ones is full, only the oldest frame under way is read on, past the bound if necessary, so that some
request always completes. One address has at most its share of that part. Whole requests in flight end by their own
deadlines, and until then back-pressure is enough. Unfinished frames are ended before they fill their part, first those
that have received nothing for longest.

Answers. Every answer counts, from its arrival here until the socket has taken it. The front door reserves room for a
large Fetch answer before it sends the request; without room it requests a small size, so that no client waits for
clients that do not read. A Fetch answer is passed on while it arrives, and only the rest of it stays reserved. For
other answers that arrive in several parts of a stream (1 MiB each), it reserves room for each part before it keeps it
(`take`); without room it drops the answer, and the client retries. When answers fill the memory, the connections that
have taken nothing for longest are closed. A connection that takes nothing for `STUCK_MS` while bytes wait in its socket
is closed in any case.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

SMALL_BYTES: Final = 64 << 10
SMALL_SHARE: Final = 0.25
RESUME_SHARE: Final = 0.75
UNFINISHED_SHARE: Final = 0.5
"""The share of the part for small ones that unfinished frames may take."""
LARGE_OVERRUN: Final = 4 / 3
"""The share of the part for large ones that unfinished frames may take: each may pass the bound by one read."""

TIDE_MS: Final = 30_000
TIDE_BYTES: Final = 64 << 20

STUCK_MS: Final = 60_000
SMALL_ANSWER_BYTES: Final = 1 << 20
RESERVED_SHARE: Final = 0.75
LARGEST_SHARE: Final = 0.25
FRESH_MS: Final = 1_000
OVERRUN: Final = 1.25
"""Above this share, a connection is closed even if it has just taken something."""


def nobody() -> None:
    """Takes the place of a callback when the connection has ended."""


@dataclass(slots=True, eq=False, kw_only=True)
class Holder:
    """One connection. `touched_ms`: when bytes of it last came.

    `wake` is called when the connection may be read again; it checks again. `end` is called when its memory is needed:
    the connection must close."""

    address: str
    wake: Callable[[], None]
    end: Callable[[], None]
    touched_ms: int
    held_bytes: int = 0
    under_way: bool = False

    @property
    def is_large(self) -> bool:
        return self.held_bytes >= SMALL_BYTES


@dataclass(slots=True, eq=False)
class Part:
    """A bound on bytes. It is full from the bound on until a quarter is free again."""

    bytes_max: int
    used_bytes: int = 0
    full: bool = False
    stalled: dict[Holder, None] = field(default_factory=dict)

    def add(self, delta_bytes: int) -> Iterable[Holder]:
        """The connections that waited and may be read again."""
        self.used_bytes += delta_bytes
        if self.used_bytes >= self.bytes_max:
            self.full = True
        elif self.full and self.used_bytes <= RESUME_SHARE * self.bytes_max:
            self.full = False
            woken, self.stalled = self.stalled, {}
            return woken
        return ()


class RequestMemory:
    def __init__(self, bytes_max: int, *, address_share: float) -> None:
        small_bytes = int(bytes_max * SMALL_SHARE)
        self._small = Part(small_bytes)
        self._large = Part(bytes_max - small_bytes)
        self._address_bytes_max = int(self._large.bytes_max * address_share)
        self._addresses: dict[str, Part] = {}
        self._unfinished: dict[Holder, None] = {}
        self._queue: dict[Holder, None] = {}  # large frames under way, oldest first
        self._unfinished_small_bytes = self._unfinished_large_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._small.used_bytes + self._large.used_bytes

    def hold(self, holder: Holder, held_bytes: int, *, under_way: bool) -> None:
        """The connection holds `held_bytes` now. `under_way`: its last frame is not whole."""
        oldest = self._oldest
        woken = self._count(holder, held_bytes, under_way=under_way)
        if under_way and held_bytes:
            self._unfinished[holder] = None
        else:
            self._unfinished.pop(holder, None)
        if under_way and holder.is_large:
            self._queue.setdefault(holder)
        else:
            self._queue.pop(holder, None)
        if self._oldest is not None and self._oldest is not oldest:
            woken.append(self._oldest)
        for one in woken:
            one.wake()

    def next_frame(self, holder: Holder) -> None:
        """Its last frame is whole and the next frame has begun; that one goes to the end of the queue."""
        if holder not in self._queue:
            return
        was_oldest = holder is self._oldest
        del self._queue[holder]
        self._queue[holder] = None
        if was_oldest and self._oldest is not None and self._oldest is not holder:
            self._oldest.wake()

    def leave(self, holder: Holder) -> None:
        for part in (self._small, self._large, self._addresses.get(holder.address)):
            if part is not None:
                part.stalled.pop(holder, None)
        self.hold(holder, 0, under_way=False)

    def admits(self, holder: Holder) -> bool:
        """Whether the connection may be read. If not, `wake` is called when that may have changed."""
        if holder is self._oldest:
            return True
        for part in self._parts(holder):
            if part.full:
                part.stalled[holder] = None
                return False
        return True

    def is_pressed(self, holder: Holder) -> bool:
        """Whether others wait for what this connection holds."""
        return any(part.full for part in self._parts(holder))

    def victims(self) -> list[Holder]:
        """The connections to close so that unfinished frames do not fill the memory; usually none."""
        small, large = self._small, self._large
        excess_small = self._unfinished_small_bytes - UNFINISHED_SHARE * small.bytes_max
        if excess_small > 0 and small.used_bytes > small.bytes_max:
            return self._stalest(excess_small + small.bytes_max // 8, large=False)
        oldest = self._oldest
        waiting_bytes = self._unfinished_large_bytes - (oldest.held_bytes if oldest else 0)
        excess = waiting_bytes - LARGE_OVERRUN * large.bytes_max
        return self._stalest(excess + large.bytes_max // 8, large=True) if excess > 0 else []

    def _stalest(self, wanted_bytes: float, *, large: bool) -> list[Holder]:
        """Frees more than is needed, so that the next bytes do not start another search."""
        candidates = [one for one in self._unfinished if one.is_large is large and one is not self._oldest]
        chosen: list[Holder] = []
        for one in sorted(candidates, key=lambda one: one.touched_ms):
            if wanted_bytes <= 0:
                break
            wanted_bytes -= one.held_bytes
            chosen.append(one)
        return chosen

    @property
    def _oldest(self) -> Holder | None:
        return next(iter(self._queue), None)

    def _parts(self, holder: Holder) -> tuple[Part, ...]:
        if not holder.is_large:
            return (self._small,)
        address = self._addresses.get(holder.address)
        return (self._large,) if address is None else (self._large, address)

    def _count(self, holder: Holder, held_bytes: int, *, under_way: bool) -> list[Holder]:
        """One sum per part: a part must not seem to have room between the old figure and the new one."""
        small = large = 0
        for sign, size, unfinished in (
            (-1, holder.held_bytes, holder.under_way),
            (1, held_bytes, under_way),
        ):
            if size >= SMALL_BYTES:
                large += sign * size
                self._unfinished_large_bytes += sign * size if unfinished else 0
            else:
                small += sign * size
                self._unfinished_small_bytes += sign * size if unfinished else 0
        holder.held_bytes, holder.under_way = held_bytes, under_way
        woken = [*self._small.add(small), *self._large.add(large)]
        if large:
            address = self._addresses.setdefault(holder.address, Part(self._address_bytes_max))
            woken += address.add(large)
            if not address.used_bytes:
                del self._addresses[holder.address]
        return woken


@dataclass(slots=True, eq=False, kw_only=True)
class UnsentAnswers:
    """One connection's answers. `moved_ms`: when its client last took something, or nothing waited. `end`: its memory
    is needed, the connection must close."""

    end: Callable[[], None] = nobody
    moved_ms: int = 0
    next_slot: int = 0  # the first request whose answer the socket has not been given
    reserved_bytes: int = 0
    unsent_bytes: int = 0  # here, behind other answers or because the socket is full
    buffered_bytes: int = 0  # in the socket's own buffer
    given_bytes: int = 0  # to the socket, ever
    taken_bytes: int = 0

    @property
    def waiting_bytes(self) -> int:
        return self.unsent_bytes + self.buffered_bytes

    def has_passed(self, slot: int) -> bool:
        """The answer of that request has left, apart from a little in the socket's buffer. Later answers may still wait
        for requests between, and one of those may wait for this one."""
        return self.next_slot > slot and self.buffered_bytes <= SMALL_ANSWER_BYTES

    def is_stuck(self, now_ms: int) -> bool:
        return self.buffered_bytes > 0 and now_ms - self.moved_ms > STUCK_MS


class AnswerMemory:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.largest_bytes = max(SMALL_ANSWER_BYTES, int(bytes_max * LARGEST_SHARE))
        self._waiting: dict[UnsentAnswers, None] = {}

    def update(self, unsent: UnsentAnswers, *, unsent_bytes: int, buffered_bytes: int, now_ms: int) -> None:
        """The bytes of the connection's answers that wait now, here and in the socket."""
        taken_bytes = unsent.given_bytes - buffered_bytes
        if taken_bytes > unsent.taken_bytes or not buffered_bytes:
            unsent.moved_ms = now_ms
        unsent.taken_bytes = taken_bytes
        self.used_bytes += unsent_bytes + buffered_bytes - unsent.waiting_bytes
        unsent.unsent_bytes, unsent.buffered_bytes = unsent_bytes, buffered_bytes
        if unsent.waiting_bytes:
            self._waiting[unsent] = None
        else:
            self._waiting.pop(unsent, None)

    def grant(self, unsent: UnsentAnswers, wanted_bytes: int, *, large_expected: bool) -> int:
        """The size of answer that the front door may request. `large_expected`: a large answer is likely."""
        wanted_bytes = min(wanted_bytes, self.largest_bytes)
        if wanted_bytes <= SMALL_ANSWER_BYTES:
            return wanted_bytes
        if not large_expected or self.used_bytes + wanted_bytes > RESERVED_SHARE * self.bytes_max:
            return SMALL_ANSWER_BYTES
        unsent.reserved_bytes += wanted_bytes
        self.used_bytes += wanted_bytes
        return wanted_bytes

    def expect(self, unsent: UnsentAnswers, left_bytes: int) -> None:
        """So many bytes of the answer have not arrived: what has arrived is counted as unsent, or has gone."""
        self.used_bytes += left_bytes - unsent.reserved_bytes
        unsent.reserved_bytes = left_bytes

    def settle(self, unsent: UnsentAnswers) -> None:
        """The answer has arrived and is counted, or no answer will come: ends the reservation."""
        self.used_bytes -= unsent.reserved_bytes
        unsent.reserved_bytes = 0

    def take(self, size: int) -> bool:
        """Reserves room for `size` more bytes of an arriving answer, until `give_back`. False: there is none."""
        if self.used_bytes + size > self.bytes_max:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        self.used_bytes -= size

    def leave(self, unsent: UnsentAnswers) -> None:
        self.settle(unsent)
        self.update(unsent, unsent_bytes=0, buffered_bytes=0, now_ms=unsent.moved_ms)

    def victims(self, now_ms: int, wanted_bytes: int = 0) -> list[UnsentAnswers]:
        """The connections to close because answers fill the memory, or leave less than is wanted; usually none."""
        excess_bytes = self.used_bytes + wanted_bytes - self.bytes_max
        if excess_bytes <= 0:
            return []
        chosen: list[UnsentAnswers] = []
        for one in sorted(self._waiting, key=_worst_first):
            if excess_bytes <= 0:
                break
            fresh = now_ms - one.moved_ms < FRESH_MS
            if fresh and self.used_bytes <= OVERRUN * self.bytes_max:
                continue
            excess_bytes -= one.waiting_bytes
            chosen.append(one)
        return chosen


def _worst_first(unsent: UnsentAnswers) -> tuple[int, int]:
    return unsent.moved_ms, -unsent.waiting_bytes


class Tide:
    """Sees when memory that was needed once has not been needed for a while, and may go back to the system."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._before_bytes = 0
        self._recent_bytes = 0

    def has_fallen(self, used_bytes: int, now_ms: int) -> bool:
        self._recent_bytes = max(self._recent_bytes, used_bytes)
        if now_ms - self._since_ms < TIDE_MS:
            return False
        fallen = self._before_bytes - self._recent_bytes >= TIDE_BYTES
        self._since_ms = now_ms
        if fallen or self._recent_bytes > self._before_bytes:
            self._before_bytes = self._recent_bytes
        self._recent_bytes = used_bytes
        return fallen

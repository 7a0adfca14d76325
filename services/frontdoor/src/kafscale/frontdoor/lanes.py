"""Lanes: what one connection sends to one topic-partition stays in order, also when its owner changes.

A part is the share of one Produce request that goes to one partition. Laws: parts of a lane are appended
in the order of their requests. A part is sent again only after a reply that says it was certainly not
appended, and then only when nothing of its lane is outstanding, with a higher lane epoch, and with
all later parts of the lane behind it. While parts are outstanding the lane stays with the instance they went
to; parts for another one are held. A part is held no longer than `hold_ms_max` after its request arrived.

Why epochs: an instance that refused a part refuses every later part of that lane with the same or a lower
epoch, so that a pipelined part cannot be appended before the refused one in front of it. A lane with
nothing outstanding is forgotten; the next one starts at the connection's highest epoch, above every
refusal that an instance may remember. Pure: no clock, no sockets; targets and parts are the caller's.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Generic, NewType, TypeVar

from kafscale.storage.keys import TopicId

LaneEpoch = NewType("LaneEpoch", int)
LaneKey = tuple[TopicId, int]
T = TypeVar("T")
NUMBER: Final = attrgetter("number")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    hold_ms_max: int = 3_000
    retry_ms: int = 50
    held_max: int = 20_000


@dataclass(slots=True, eq=False)
class Part:
    """One partition's share of one request; `number` orders the requests of a connection."""

    key: LaneKey
    number: int
    arrived_ms: int


P = TypeVar("P", bound=Part)


@dataclass(slots=True, eq=False)
class Lane(Generic[P, T]):
    epoch: LaneEpoch
    target: T | None = None
    outstanding: int = 0
    held: list[P] = field(default_factory=list)
    retry_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend(Generic[P, T]):
    """The parts that must be sent now, in this order."""

    target: T
    epoch: LaneEpoch
    parts: tuple[P, ...]


class Lanes(Generic[P, T]):
    """All lanes of one connection that have outstanding or held parts."""

    def __init__(self, limits: LaneLimits, on_hold: Callable[[LaneKey, bool], None] | None = None) -> None:
        """`on_hold` is called when a lane begins to hold parts, and when it no longer holds any."""
        self._limits = limits
        self._on_hold = on_hold
        self._epoch = LaneEpoch(0)
        self._lanes: dict[LaneKey, Lane[P, T]] = {}
        self._holding: dict[LaneKey, Lane[P, T]] = {}
        self._held = 0

    @property
    def held_count(self) -> int:
        return self._held

    @property
    def holding(self) -> tuple[LaneKey, ...]:
        """The lanes that hold parts."""
        return tuple(self._holding)

    @property
    def full(self) -> bool:
        """Whether no more parts may be held. Then a part that cannot be sent at once must be refused."""
        return self._held >= self._limits.held_max

    def __len__(self) -> int:
        return len(self._lanes)

    def submit(self, part: P, target: T | None, now_ms: int) -> LaneEpoch | None:
        """The epoch with which the part must be sent to `target` now. None: the lane holds the part."""
        lane = self._lanes.get(part.key)
        if lane is None:
            lane = self._lanes[part.key] = Lane(self._epoch)
        if lane.held or target is None or (lane.outstanding and lane.target != target):
            self._hold(lane, part, now_ms)
            return None
        lane.target = target
        lane.outstanding += 1
        return lane.epoch

    def settled(self, part: P) -> None:
        """The part has its final answer, or its outcome is unknown: it is never sent again."""
        lane = self._lanes[part.key]
        self._returned(lane)
        if not lane.outstanding and not lane.held:
            del self._lanes[part.key]

    def refused(self, part: P, now_ms: int) -> None:
        """The part was certainly not appended. The lane is held until all outstanding parts are answered."""
        lane = self._lanes[part.key]
        self._returned(lane)
        self._epoch = max(self._epoch, LaneEpoch(lane.epoch + 1))
        lane.retry_ms = now_ms + self._limits.retry_ms
        self._hold(lane, part, lane.retry_ms)

    def changed(self, now_ms: int, key: LaneKey | None = None) -> None:
        """The owner of one lane, or (None) of any lane, changed: held parts may be sent at once."""
        lanes = self._holding.values() if key is None else (self._holding.get(key),)
        for lane in lanes:
            if lane is not None:
                lane.retry_ms = min(lane.retry_ms, now_ms)

    def due(
        self, resolve: Callable[[LaneKey], T | None], now_ms: int, key: LaneKey | None = None
    ) -> Iterator[Resend[P, T]]:
        """The parts to send again now, of one lane or (None) of all. A lane without a target is tried again after
        the retry time. Send each before you take the next one: `resolve` may know from it who takes no more."""
        wanted = tuple(self._holding) if key is None else (key,)
        for key in wanted:
            lane = self._holding.get(key)
            if lane is None or lane.outstanding or lane.retry_ms > now_ms:
                continue
            target = resolve(key)
            if target is None:
                lane.retry_ms = now_ms + self._limits.retry_ms
                continue
            lane.epoch, lane.target = self._epoch, target
            lane.outstanding = len(lane.held)
            resend = Resend(target=target, epoch=lane.epoch, parts=tuple(lane.held))
            self._release(key, lane, lane.outstanding)
            yield resend

    def expired(self, now_ms: int) -> list[P]:
        """A lane whose first part was held too long gives up all its held parts, because none may pass the first."""
        gone: list[P] = []
        latest = now_ms - self._limits.hold_ms_max
        for lane in list(self._holding.values()):
            if lane.held[0].arrived_ms <= latest:
                gone += self._drop(lane, lane.held)
        return gone

    def withdraw(self, part: P) -> None:
        """The client no longer waits for a held part."""
        self._drop(self._holding[part.key], [part])

    def held_in(self, key: LaneKey) -> tuple[P, ...]:
        lane = self._holding.get(key)
        return () if lane is None else tuple(lane.held)

    def holds(self, part: P) -> bool:
        lane = self._holding.get(part.key)
        return lane is not None and part in lane.held

    def next_ms(self) -> int | None:
        """The time of the next call of `due` and `expired`; None while nothing is held."""
        if not self._holding:
            return None
        return min(self._lane_next_ms(lane) for lane in self._holding.values())

    def _lane_next_ms(self, lane: Lane[P, T]) -> int:
        expiry_ms = lane.held[0].arrived_ms + self._limits.hold_ms_max
        return expiry_ms if lane.outstanding else min(lane.retry_ms, expiry_ms)

    def _hold(self, lane: Lane[P, T], part: P, retry_ms: int) -> None:
        if not lane.held:
            lane.retry_ms = retry_ms
            self._holding[part.key] = lane
            self._says(part.key, holding=True)
        insort(lane.held, part, key=NUMBER)
        self._held += 1

    def _drop(self, lane: Lane[P, T], parts: Iterable[P]) -> list[P]:
        dropped = list(parts)
        for part in dropped:
            lane.held.remove(part)
        if dropped and not lane.held:
            key = dropped[0].key
            del self._holding[key]
            self._says(key, holding=False)
            if not lane.outstanding:
                del self._lanes[key]
        self._held -= len(dropped)
        return dropped

    def _release(self, key: LaneKey, lane: Lane[P, T], count: int) -> None:
        lane.held = []
        del self._holding[key]
        self._says(key, holding=False)
        self._held -= count

    def _says(self, key: LaneKey, *, holding: bool) -> None:
        if self._on_hold is not None:
            self._on_hold(key, holding)

    @staticmethod
    def _returned(lane: Lane[P, T]) -> None:
        assert lane.outstanding > 0, "a part came back that was not out"
        lane.outstanding -= 1
        if not lane.outstanding:
            lane.target = None

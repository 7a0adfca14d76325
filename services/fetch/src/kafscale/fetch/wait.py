"""The long poll of a Fetch as a machine: what to do now, given what could be served. Pure.

Answer at once on an error, or when min_bytes are available; else hold until max_wait is over.
An empty answer claims that there are no records. It is given only if the view is as new as the front door's last
acknowledgement, and was confirmed by etcd lately. If the request was not held long enough for the watch to deliver a
change, the view must have been read from etcd after the request arrived: the watch may deliver older changes of other
partitions meanwhile. A held request polls nothing.

A front door that divides a request among instances asks some of them again without a wait. A negative max_wait says how
long the client has waited by then: its request arrived that long ago.
"""

import enum
from dataclasses import dataclass
from typing import Final

HELD_MIN_MS: Final = 100
"""Held at least this long, a request may trust a live watch."""
CONFIRMED_MAX_MS: Final = 5_000
"""An idle view is confirmed by a read of etcd this often at most, and only while clients read it."""
CATCH_UP_MS: Final = 10
"""How long the watch may take to reach the demanded revision before etcd is read."""


class Act(enum.Enum):
    ANSWER = "answer"
    REFRESH = "refresh"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the views have for a request now."""

    ready_bytes: int
    full: bool = False  # a limit, not the log's end, kept more from being ready
    failed: bool = False  # some partition answers an error
    behind: bool = False  # older than the revision the request demands
    read_ms: int = 0  # when the last read of the least lately read of its views began
    confirmed_ms: int = 0  # the same, or when the watch last delivered a change


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    act: Act
    until_ms: int = 0  # of HOLD: look again then, if nothing woke the request before


class FetchWait:
    """One request; `now_ms` is monotonic. `max_wait_ms`: if negative, the client has waited already."""

    __slots__ = ("_arrived_ms", "_deadline_ms", "_min_bytes")

    def __init__(self, *, min_bytes: int, max_wait_ms: int, now_ms: int) -> None:
        self._min_bytes = min_bytes
        self._arrived_ms = now_ms + min(0, max_wait_ms)
        self._deadline_ms = now_ms + max(0, max_wait_ms)

    def step(self, offer: Offer, now_ms: int) -> Step:
        enough = offer.full or offer.ready_bytes >= self._min_bytes
        if offer.failed or (offer.ready_bytes and enough):
            return Step(act=Act.ANSWER)
        if self._min_bytes <= 0 or now_ms >= self._deadline_ms:
            if offer.ready_bytes or self._may_say_empty(offer, now_ms):
                return Step(act=Act.ANSWER)
            return Step(act=Act.REFRESH)
        if offer.behind and not offer.ready_bytes:
            catch_up_ms = self._arrived_ms + CATCH_UP_MS
            if now_ms >= catch_up_ms:
                return Step(act=Act.REFRESH)
            return Step(act=Act.HOLD, until_ms=min(self._deadline_ms, catch_up_ms))
        return Step(act=Act.HOLD, until_ms=self._deadline_ms)

    def cut_short(self, now_ms: int) -> None:
        """Ends the hold, as if max_wait were over."""
        self._deadline_ms = min(self._deadline_ms, now_ms)

    def _may_say_empty(self, offer: Offer, now_ms: int) -> bool:
        if offer.behind:
            return False
        if now_ms - self._arrived_ms < HELD_MIN_MS:
            return offer.read_ms >= self._arrived_ms
        return offer.confirmed_ms >= now_ms - CONFIRMED_MAX_MS

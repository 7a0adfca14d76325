"""One order over all partitions of a topic. Pure: the caller reads the windows that `Merge.wanted` names.

Laws:
- R1: a walk is the k-way merge of the partitions, by timestamp and then partition. Inside a partition the order is that
  of the offsets, whatever the timestamps are. A record is shown only when every other partition has its next record
  here too, or is at its end: a late record is never shown out of place because another partition was slow.
- R2: a cut is one offset of each partition. A walk ends at a cut, and the walk that begins there, in either direction,
  repeats no record and leaves none out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

Cut = dict[int, int]
"""Of each partition the first offset above the cut."""
_GROWTH: Final = 4
_SIZE_MAX: Final = 1 << 40
"""Compaction and aborted transactions leave gaps of any length. A gap costs one read, whatever its length."""


class Walk(Enum):
    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets from `start` to before `end`."""

    start: int
    end: int


class Placed(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int:
        """-1 if it has none."""
        ...


R = TypeVar("R", bound=Placed)


@dataclass(slots=True)
class _Side(Generic[R]):
    """`at`: what lies beyond it, in the direction of the walk, is not read yet."""

    log: Span
    at: int
    size: int
    heads: deque[R] = field(default_factory=deque)


class Merge(Generic[R]):
    """A walk from `cut` over `logs`, of `limit` records at most. A partition that the cut does not name is above it.
    Offsets of the cut outside a log count as its nearest end."""

    def __init__(self, walk: Walk, logs: Mapping[int, Span], cut: Mapping[int, int], limit: int) -> None:
        self.walk, self._limit = walk, limit
        self.shown: list[R] = []
        """In the order of the walk."""
        first = max(-(-limit // max(len(logs), 1)), 1)
        self._sides: dict[int, _Side[R]] = {
            partition: _Side(log, min(max(cut.get(partition, log.start), log.start), log.end), first)
            for partition, log in sorted(logs.items())
        }

    def wanted(self) -> dict[int, Span]:
        """The windows to read next, by partition. None: the page is full, or the logs are at their ends."""
        self._advance()
        if len(self.shown) == self._limit:
            return {}
        return {number: self._window(side) for number, side in self._sides.items() if self._lacks(side)}

    def give(self, partition: int, read: Span, records: Iterable[R]) -> None:
        """All records of `read`, by offset: a part of the window that begins at its near end."""
        side = self._sides[partition]
        older = self.walk is Walk.OLDER
        assert side.at == (read.end if older else read.start), "a part of the log would be left out"
        side.at = read.start if older else read.end
        side.heads.extend(sorted(records, key=lambda each: each.offset, reverse=older))
        side.size = min(side.size * _GROWTH, _SIZE_MAX)

    def shrink(self, partition: int) -> None:
        """The window has too many records for one read: the next one is a quarter of it."""
        side = self._sides[partition]
        window = self._window(side)
        side.size = max((window.end - window.start) // _GROWTH, 1)

    def cut(self) -> Cut:
        """Where the walk is."""
        return {number: self._beyond(side) for number, side in self._sides.items()}

    def _beyond(self, side: _Side[R]) -> int:
        if not side.heads:
            return side.at
        return side.heads[0].offset + (1 if self.walk is Walk.OLDER else 0)

    def _lacks(self, side: _Side[R]) -> bool:
        return not side.heads and side.at != (side.log.start if self.walk is Walk.OLDER else side.log.end)

    def _window(self, side: _Side[R]) -> Span:
        if self.walk is Walk.OLDER:
            return Span(max(side.at - side.size, side.log.start), side.at)
        return Span(side.at, min(side.at + side.size, side.log.end))

    def _advance(self) -> None:
        pick = max if self.walk is Walk.OLDER else min
        while len(self.shown) < self._limit and not any(map(self._lacks, self._sides.values())):
            ready = [side for side in self._sides.values() if side.heads]
            if not ready:
                return
            best = pick(ready, key=lambda side: (side.heads[0].timestamp_ms, side.heads[0].partition))
            self.shown.append(best.heads.popleft())

"""Folding: a slice repeats the small slices before it, and takes their places in the tail. Pure.

A partition with few records per flush would fill its tail with tiny slices, and each would be settled one by one. So a
new slice takes along what precedes it, as long as that is not more than twice what it has by then: each record is
repeated a few times at most while slices double. Only committed slices of this epoch whose batches are still in memory
are folded, never those that a settle plan is rewriting, and only when nothing of the partition is in flight, so that
the commit of the fold finds the tail as it was. Nothing depends on folding but the length of the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kafscale.log.heads import Head, Seg
from kafscale.produce.log.by_size import BySize
from kafscale.produce.log.flight import OpenBuffer

FOLD_MIN: Final = 3
"""Slices, at least: a fold of fewer saves too little."""
FOLD_BYTES_MAX: Final = 512 << 10
_WIDTH: Final = 2


class Keeps(Protocol):
    """A partition with `bytes` of batches in memory."""

    bytes: int

    def clear(self) -> None: ...


class KeptBudget:
    """Memory for the batches of slices of all partitions of an instance. Beyond it one of the partitions with the most
    bytes (`by_size.py`) forgets its own: they are read from the store when they are settled, and are not folded."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._partitions = BySize[Keeps]()

    def resized(self, kept: Keeps, before: int) -> None:
        """The partition has other bytes than `before`."""
        self.used_bytes += kept.bytes - before
        self._partitions.resized(kept, before, kept.bytes)

    def make_room(self) -> None:
        while self.used_bytes > self.bytes_max:
            next(self._partitions.largest_first()).clear()


class Kept:
    """The batches of one partition's slices that its owner has written, by base offset. They are copies: a few bytes
    of a received frame would pin all of it."""

    def __init__(self, budget: KeptBudget) -> None:
        self._budget = budget
        self._slices: dict[int, OpenBuffer] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._slices)

    def get(self, seg: Seg) -> OpenBuffer | None:
        """The batches of this slice."""
        buffer = self._slices.get(seg.base)
        return buffer if buffer is not None and seg.is_slice and buffer.end == seg.end else None

    def add(self, buffer: OpenBuffer) -> None:
        """A slice is committed. A fold replaces the slice at its base."""
        self._drop(buffer.base)
        self._slices[buffer.base] = buffer.copied()
        self._count(buffer.bytes)
        self._budget.make_room()

    def keep_only(self, tail: Sequence[Seg]) -> None:
        """Forget what the tail does not name any more."""
        if not self._slices:
            return
        named = {seg.base: seg.end for seg in tail if seg.is_slice}
        for base, buffer in list(self._slices.items()):
            if named.get(base) != buffer.end:
                self._drop(base)

    def clear(self) -> None:
        self._slices.clear()
        self._count(-self.bytes)

    def _drop(self, base: int) -> None:
        dropped = self._slices.pop(base, None)
        if dropped is not None:
            self._count(-dropped.bytes)

    def _count(self, size: int) -> None:
        self.bytes += size
        self._budget.resized(self, self.bytes - size)


def foldable(head: Head, kept: Kept, size: int, planned_end: int) -> list[OpenBuffer]:
    """The batches that a slice of `size` bytes repeats, in offset order; empty if it does not fold. A settle plan under
    way rewrites the offsets below `planned_end`."""
    taken: list[OpenBuffer] = []
    for seg in reversed(head.tail):
        buffer = kept.get(seg)
        if seg.epoch != head.epoch or seg.base < planned_end or buffer is None:
            break
        if buffer.bytes > _WIDTH * size or size + buffer.bytes > FOLD_BYTES_MAX:
            break
        taken.append(buffer)
        size += buffer.bytes
    return taken[::-1] if len(taken) >= FOLD_MIN else []

"""An index by size: it finds one of the largest entries without a scan of all.

The law: a budget that is used up asks for the largest with every batch, and there may be ten thousand partitions. So
things are kept in classes, eight for each power of two, and only a thing that changes its class is moved. What
`largest_first` names is at most a ninth smaller than any that it names later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_EXACT_BITS: Final = 4

T = TypeVar("T")


class BySize(Generic[T]):
    """The caller reports each change of a size. A thing of size 0 is not kept."""

    def __init__(self) -> None:
        self._classes: dict[int, dict[T, None]] = {}

    def resized(self, thing: T, before: int, now: int) -> None:
        old, new = _class_of(before), _class_of(now)
        if old == new:
            return
        if old:
            members = self._classes[old]
            del members[thing]
            if not members:
                del self._classes[old]
        if new:
            self._classes.setdefault(new, {})[thing] = None

    def last_in_class(self, thing: T, size: int) -> None:
        """The others of its class are named before it."""
        members = self._classes[_class_of(size)]
        del members[thing]
        members[thing] = None

    def largest_first(self) -> Iterator[T]:
        """Report no change while you iterate: take what you need first."""
        for size in sorted(self._classes, reverse=True):
            yield from self._classes[size]


def _class_of(size: int) -> int:
    """By the four highest bits. 0: no class."""
    bits = size.bit_length()
    return size if bits <= _EXACT_BITS else (bits << 3) + (size >> (bits - _EXACT_BITS))

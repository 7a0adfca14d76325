"""Memory for the idempotent producers of all partitions of an instance.

The law: a table that grows beyond its equal share forgets its own producers, and one within its
share is given room by one of the largest (`by_size.py`). So a client that makes producer ids without end takes them
from itself, and not from those who have few.
"""

from __future__ import annotations

from typing import Protocol

from kafscale.produce.log.by_size import BySize

PRODUCER_BYTES_MAX = 64 << 20
_SHRINK_SHARE = 16
"""The largest gives up so much of itself at once."""


class Table(Protocol):
    @property
    def bytes(self) -> int: ...
    @property
    def evictable(self) -> bool: ...
    def __len__(self) -> int: ...
    def evict(self, count: int) -> int: ...


class ProducerBudget:
    """See the module's law. Tables report each change of their bytes."""

    def __init__(self, bytes_max: int = PRODUCER_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.evicted = 0
        self._tables: set[Table] = set()
        self._by_size = BySize[Table]()

    @property
    def ids(self) -> int:
        """How many producers the tables hold."""
        return sum(map(len, self._tables))

    def join(self, table: Table) -> None:
        self._tables.add(table)
        self._count(table, 0, table.bytes)

    def leave(self, table: Table) -> None:
        self._tables.remove(table)
        self._count(table, table.bytes, 0)

    def resized(self, table: Table, before: int) -> None:
        """The table has other bytes than `before`."""
        self._count(table, before, table.bytes)

    def _count(self, table: Table, before: int, now: int) -> None:
        self.used_bytes += now - before
        self._by_size.resized(table, before, now)

    def make_room(self, asking: Table) -> bool:
        """Whether there is room for one more batch; False when nothing more can be forgotten."""
        while self.used_bytes >= self.bytes_max:
            if asking.evictable and asking.bytes * len(self._tables) > self.bytes_max:
                gone = asking.evict(1)
            else:
                gone = self._shrink_largest()
            if not gone:
                return False
            self.evicted += gone
        return True

    def _shrink_largest(self) -> int:
        """One that may forget nothing now is passed over, and is looked at again after the others of its size."""
        busy: list[Table] = []
        largest = None
        for table in self._by_size.largest_first():
            if table.evictable:
                largest = table
                break
            busy.append(table)
        for table in busy:
            self._by_size.last_in_class(table, table.bytes)
        return 0 if largest is None else largest.evict(len(largest) // _SHRINK_SHARE + 1)

"""The highest etcd revisions that this front door has answered for: of commits, and of moves of a log's start.

Reads carry both, so that a client that has seen its ack finds its record, and one that has deleted records does
not see them again, whichever fetch instance it asks. They are two numbers because commits never end while
moves are rare: only for the second may a read that could be served be made to wait for etcd. Workers of one
front door share them: each writes its own slots of a common page and reads them all.
"""

import mmap
import os
from typing import Final

SLOT_BYTES: Final = 8
KINDS: Final = 2


class AckedRevision:
    """Without a page: of this process alone."""

    __slots__ = ("_commits", "_log_starts")

    def __init__(self, slots: memoryview | None = None, slot: int = 0) -> None:
        workers = 0 if slots is None else len(slots) // KINDS
        self._commits = _Highest(slots and slots[:workers], slot)
        self._log_starts = _Highest(slots and slots[workers:], slot)

    @property
    def value(self) -> int:
        return self._commits.value

    @property
    def log_starts(self) -> int:
        """Clients have seen log starts as of this revision."""
        return self._log_starts.value

    def saw(self, revision: int) -> None:
        self._commits.saw(revision)

    def saw_log_starts(self, revision: int) -> None:
        self._log_starts.saw(revision)


class _Highest:
    __slots__ = ("_own", "_slot", "_slots")

    def __init__(self, slots: memoryview | None, slot: int) -> None:
        self._own = 0
        self._slot = slot
        self._slots = slots

    @property
    def value(self) -> int:
        return self._own if self._slots is None else max(self._slots)

    def saw(self, revision: int) -> None:
        if revision > self._own:
            self._own = revision
            if self._slots is not None:
                self._slots[self._slot] = revision


def make_page(workers: int) -> int:
    """A file descriptor to hand to the workers."""
    page = os.memfd_create("kafscale-acked-revisions")
    os.ftruncate(page, workers * KINDS * SLOT_BYTES)
    return page


def open_page(page: int, workers: int) -> memoryview:
    """Aligned eight-byte slots: a reader never sees half of one."""
    return memoryview(mmap.mmap(page, workers * KINDS * SLOT_BYTES)).cast("q")

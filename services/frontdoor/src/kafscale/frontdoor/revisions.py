"""The highest etcd revision of a commit that this front door has acknowledged to a client.

Reads carry it, so that a client that has seen its ack also finds its record, whichever fetch instance it
asks. Workers of one front door share it: each writes its own slot of a common page and reads them all.
"""

import mmap
import os
from typing import Final

SLOT_BYTES: Final = 8


class AckedRevision:
    """Without a page: of this process alone."""

    __slots__ = ("_own", "_slot", "_slots")

    def __init__(self, slots: memoryview | None = None, slot: int = 0) -> None:
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
    os.ftruncate(page, workers * SLOT_BYTES)
    return page


def open_page(page: int, workers: int) -> memoryview:
    """Aligned eight-byte slots: a reader never sees half of one."""
    return memoryview(mmap.mmap(page, workers * SLOT_BYTES)).cast("q")

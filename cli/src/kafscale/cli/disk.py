"""How much room there is on the disk of a data directory, and the sentence that says that there is too little."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ETCD_PIECE_BYTES: Final = 64 << 20
"""etcd takes the room for its log in pieces of this size, one of them ahead. It ends if there is none."""
FIRST_BYTES: Final = 3 * ETCD_PIECE_BYTES
"""New data begins with two pieces; the rest is for etcd's database, and for records."""
PUT_BYTES: Final = 8 << 20
"""A segment. Records are refused if a PUT would take some of the room that is kept."""
KEPT_SHARE: Final = 20
KEPT_BYTES_MAX: Final = 1 << 30
MB: Final = 1 << 20
WATCH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Disk:
    """`free`: the bytes that this user may still write. `path` is on the disk."""

    path: Path
    free: int
    total: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises OSError."""
        found = os.statvfs(path)
        return cls(path, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @property
    def kept(self) -> int:
        """The room that records leave for etcd: a twentieth of the disk, from one piece to a gigabyte."""
        return min(max(self.total // KEPT_SHARE, ETCD_PIECE_BYTES), KEPT_BYTES_MAX)

    def full(self, *, with_records: bool) -> str | None:
        """A sentence without its end, or None. `with_records`: the records are on this disk as well."""
        if self.free >= (self.kept + PUT_BYTES if with_records else ETCD_PIECE_BYTES):
            return None
        said = f"the disk of {self.path} is full ({self._room()}"
        return (
            f"{said}, of which {self.kept // MB} MB are kept for etcd)"
            if self.free and with_records
            else f"{said})"
        )

    def too_small(self) -> str | None:
        """For new data: a sentence, or None."""
        if self.free >= FIRST_BYTES:
            return None
        return (
            f"the disk of {self.path} has too little room ({self._room()}): a new cluster needs "
            f"{FIRST_BYTES // MB} MB; use another --data-dir, or make room"
        )

    def has_room(self) -> str:
        return f"the disk of {self.path} has room again ({self._room()})"

    def _room(self) -> str:
        return f"{self.free // MB} of {self.total // MB} MB free"


class DiskWatch:
    """Says when the disk becomes full, and when it has room again. `look` raises OSError."""

    def __init__(self, look: Callable[[], Disk], *, with_records: bool) -> None:
        self._look = look
        self._with_records = with_records
        self._said = False

    def is_full(self) -> bool:
        return self._full() is not None

    def news(self) -> str | None:
        """A sentence, if the disk is full and that has not been said."""
        full = self._full()
        if full is None or self._said:
            return None
        self._said = True
        effect = "records are refused with KAFKA_STORAGE_ERROR" if self._with_records else "etcd may stop"
        return f"{full}; {effect}, and everything goes on by itself once there is room"

    async def watch(self, report: Callable[[str], None]) -> None:
        """Until cancelled."""
        while True:
            if (news := self.news()) is not None:
                report(news)
            elif self._said and not self.is_full():
                self._said = False
                report(self._look().has_room())
            await asyncio.sleep(WATCH_S)

    def _full(self) -> str | None:
        return self._look().full(with_records=self._with_records)

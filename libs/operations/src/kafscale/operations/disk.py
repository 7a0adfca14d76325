"""How much room there is on the disk of a data directory, and the sentence that says that there is too little."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
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


class Use(Enum):
    """What of a data directory is on a disk."""

    ETCD = "etcd"
    RECORDS = "records"
    BOTH = "etcd and records"


@dataclass(frozen=True, slots=True)
class Disk:
    """`free`: the bytes that this user may still write. `path` is on the disk."""

    path: Path
    use: Use
    free: int
    total: int

    @classmethod
    def of(cls, path: Path, use: Use) -> Self:
        """Raises OSError."""
        found = os.statvfs(path)
        return cls(path, use, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @property
    def kept(self) -> int:
        """The room that records leave for an etcd on the same disk: a twentieth of it, from one piece to a gigabyte."""
        if self.use is not Use.BOTH:
            return 0
        return min(max(self.total // KEPT_SHARE, ETCD_PIECE_BYTES), KEPT_BYTES_MAX)

    def full(self) -> str | None:
        """A sentence without its end, or None."""
        if self.free >= (ETCD_PIECE_BYTES if self.use is Use.ETCD else self.kept + PUT_BYTES):
            return None
        said = f"the disk of {self.path} is full ({self._room()}"
        return (
            f"{said}, of which {self.kept // MB} MB are kept for etcd)"
            if self.free and self.kept
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
    """Says when a disk becomes full, and when it has room again. `look` may raise OSError: then nothing is known."""

    def __init__(self, look: Callable[[], Disk]) -> None:
        self._look = look
        self._said = False

    def is_full(self) -> bool:
        disk = self._seen()
        return disk is not None and disk.full() is not None

    def news(self) -> str | None:
        """A sentence, if the disk is full and that has not been said since it had room."""
        disk = self._seen()
        full = None if disk is None else disk.full()
        is_new = full is not None and not self._said
        self._said = full is not None
        return full if is_new else None

    async def watch(self, report: Callable[[str], None]) -> None:
        """Until cancelled."""
        while True:
            was_full, news = self._said, self.news()
            if news is not None:
                report(f"{news}; {self._effect()}, and everything goes on by itself once there is room")
            elif was_full and not self._said and (disk := self._seen()) is not None:
                report(disk.has_room())
            await asyncio.sleep(WATCH_S)

    def _effect(self) -> str:
        disk = self._seen()
        only_etcd = disk is not None and disk.use is Use.ETCD
        return "etcd may stop" if only_etcd else "records are refused with KAFKA_STORAGE_ERROR"

    def _seen(self) -> Disk | None:
        try:
            return self._look()
        except OSError:
            return None

"""The bundles of an instance that are dead and wait for their deletion, oldest first. Pure; all times are mono_ms.

A directory takes hundreds of bundles a second, and each waits for a quarter of an hour. So the ids of a second are one
string of bytes, and a look costs as much as it finds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafscale.storage.keys import BundleId

ID_BYTES: Final = 16
PART_MS: Final = 1_000
DEAD_MAX: Final = 500_000
"""8 MB. What is more is left to the sweep of upkeep: the store refuses the deletions, or takes too few."""


@dataclass(slots=True)
class _Part:
    """`ids` died between `first_ms` and `last_ms`."""

    first_ms: int
    last_ms: int
    ids: bytearray


class DeadBundles:
    def __init__(self, grace_ms: int, dead_max: int = DEAD_MAX) -> None:
        self._grace_ms = grace_ms
        self._dead_max = dead_max
        self._parts: deque[_Part] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, bundle_id: BundleId, now_ms: int) -> None:
        if self._count == self._dead_max:
            return
        if not self._parts or now_ms >= self._parts[-1].first_ms + PART_MS:
            self._parts.append(_Part(now_ms, now_ms, bytearray()))
        part = self._parts[-1]
        part.last_ms = now_ms
        part.ids += bundle_id
        self._count += 1

    def take(self, now_ms: int, at_most: int) -> list[BundleId]:
        """Those that are dead for the grace, out of here."""
        found: list[BundleId] = []
        while self._parts and len(found) < at_most and self._parts[0].last_ms + self._grace_ms <= now_ms:
            ids = self._parts[0].ids
            some = bytes(ids[: (at_most - len(found)) * ID_BYTES])
            del ids[: len(some)]
            found += [BundleId(some[at : at + ID_BYTES]) for at in range(0, len(some), ID_BYTES)]
            if not ids:
                self._parts.popleft()
        self._count -= len(found)
        return found

    def put_back(self, some: Iterable[BundleId], now_ms: int) -> None:
        """Taken, and not deleted: they are due again at once."""
        ids = bytearray(b"".join(some))
        if ids:
            since_ms = now_ms - self._grace_ms
            self._parts.appendleft(_Part(since_ms - PART_MS, since_ms, ids))
            self._count += len(ids) // ID_BYTES

"""Committed segments on their way into the shared cache.

A segment's bytes are kept from its PUT, which returns the etag, to its commit. Only committed segments are put into the
cache, and no acknowledgement waits for that. A segment that was found in the store instead of being written is left to
readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.produce.log.model import Part, PutObject
from kafscale.runtime.shared_cache import Fill, SharedCache
from kafscale.storage.heads import Seg


class SharedFills:
    """Of one partition in one epoch."""

    __slots__ = ("_shared", "_written")

    def __init__(self, shared: SharedCache) -> None:
        self._shared: SharedCache | None = shared  # None: the epoch is over
        self._written: dict[int, Fill] = {}  # by base offset; their bytes are reserved

    def uploaded(self, put: PutObject, etag: str) -> None:
        if self._shared is None or put.part is not Part.SEGMENT:
            return
        fill = self._shared.prepare(put.key, etag, put.body)
        if fill is not None:
            self._written[put.base] = fill

    def committed(self, segments: Sequence[Seg]) -> None:
        if self._shared is None:
            return
        for seg in segments:
            fill = self._written.pop(seg.base, None)
            if fill is not None:
                self._shared.submit(fill)

    def close(self) -> None:
        """The epoch is over: what is not committed by now is not put there, nor is anything that comes late."""
        if self._shared is None:
            return
        for fill in self._written.values():
            self._shared.give_up(fill)
        self._written.clear()
        self._shared = None

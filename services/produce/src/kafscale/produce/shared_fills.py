"""Committed segments on their way into the shared cache.

A segment's bytes are kept from its PUT, which returns the etag, to its commit. Only committed segments are put into the
cache, and no acknowledgement waits for that. A segment that was found in the store instead of being written is left to
readers. A bundle is put there whole, once, after the first commit of one of its slices; readers get the ranges that
they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.log.heads import Seg
from kafscale.produce.log.model import Part, PutObject
from kafscale.runtime.shared_cache import Fill, SharedCache
from kafscale.wire.buffers import Buffer


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


class BundleFills:
    """Of an instance. Without a shared cache nothing is kept."""

    __slots__ = ("_shared", "_written")

    def __init__(self, shared: SharedCache | None) -> None:
        self._shared = shared
        self._written: dict[bytes, _Written] = {}  # by bundle; their bytes are reserved

    def uploaded(self, bundle_id: bytes, key: str, etag: str, body: Sequence[Buffer], undecided: int) -> None:
        """`undecided` partitions may commit a slice of it."""
        if self._shared is None or not undecided:
            return
        fill = self._shared.prepare(key, etag, body, in_ranges=True)
        if fill is not None:
            self._written[bundle_id] = _Written(fill, undecided)

    def committed(self, bundle_id: bytes) -> None:
        written = self._written.pop(bundle_id, None)
        if written is not None and self._shared is not None:
            self._shared.submit(written.fill)

    def abandoned(self, bundle_id: bytes) -> None:
        """One more of its partitions will not commit its slice."""
        written = self._written.get(bundle_id)
        if written is None or self._shared is None:
            return
        written.undecided -= 1
        if not written.undecided:
            del self._written[bundle_id]
            self._shared.give_up(written.fill)


@dataclass(slots=True)
class _Written:
    fill: Fill
    undecided: int

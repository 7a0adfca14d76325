"""Where the bytes of a committed segment are: an object of its own, or a slice of a bundle, whose directory says which
other slices it has."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafscale.log.bundle import (
    BUNDLE_HEADER_SIZE,
    ENTRY_SIZE,
    TRAILER_SIZE,
    Directory,
    parse_directory,
    parse_trailer,
)
from kafscale.log.heads import Seg
from kafscale.storage.keys import BundleId, Keyspace, index_beside
from kafscale.storage.objects import ObjectInfo, ObjectStore

TAIL_BYTES: Final = TRAILER_SIZE + 256 * ENTRY_SIZE
"""Read from the end of a bundle: trailer and, unless it has more slices, the directory."""


class Place(NamedTuple):
    """Bytes [start, end) of the object with this etag; `end` None: the whole object. `etag` None: any."""

    key: str
    etag: str | None
    start: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        """For logs, and for caches that other processes share: unique with the etag."""
        return self.key if self.end is None else f"{self.key}@{self.start}"

    async def read(self, store: ObjectStore, start: int = 0, end: int | None = None) -> bytes:
        """Bytes [start, end) of the segment, by default all. Raises ObjectNotFound, PreconditionFailed, StoreError."""
        stop = self.end if end is None else self.start + end
        return await store.get(self.key, if_match=self.etag, start=self.start + start, end=stop)


def place_of(keys: Keyspace, topic: str, partition: int, seg: Seg) -> Place:
    """The one rule that leads from a commit record to bytes."""
    if seg.is_slice:
        key = keys.bundle_key(BundleId(seg.bundle))
        return Place(key, seg.etag, seg.position, seg.position + seg.size)
    return Place(seg.key or keys.segment_key(topic, partition, seg.base), seg.etag)


def index_of(place: Place, seg: Seg) -> Place | None:
    """The `.index` of a segment; None for a slice, which is short enough to be walked."""
    return None if seg.is_slice else Place(index_beside(place.key), seg.index_etag or None)


async def read_directory(store: ObjectStore, info: ObjectInfo) -> Directory:
    """The directory of a stored bundle, read by ranges: the slices stay in the store.

    `info` as a listing or HEAD returned it. Raises ObjectNotFound, PreconditionFailed, StoreError, SegmentError.
    """
    header = await store.get(info.key, if_match=info.etag, end=BUNDLE_HEADER_SIZE)
    start = max(0, info.size - TAIL_BYTES)
    tail = await store.get(info.key, if_match=info.etag, start=start, end=info.size)
    trailer = parse_trailer(tail[-TRAILER_SIZE:], info.size)
    if trailer.position < start:
        start = trailer.position
        tail = await store.get(info.key, if_match=info.etag, start=start, end=info.size)
    return parse_directory(header, tail[trailer.position - start : trailer.end - start], trailer)

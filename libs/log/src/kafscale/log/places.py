"""Where the bytes of a committed segment are: an object of its own, or a slice of a bundle."""

from __future__ import annotations

from typing import NamedTuple

from kafscale.log.heads import Seg
from kafscale.storage.keys import BundleId, Keyspace, index_beside
from kafscale.storage.objects import ObjectStore


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

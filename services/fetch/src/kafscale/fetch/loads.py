"""Reads segments, each from the cache that instances share, if there is one, else from the store. At most `gets_max`
GETs run at a time.

One GET reads a segment, or several slices of one bundle with the bytes between them. What comes from the store is put
into the shared cache, except slices: the produce service puts each bundle there, whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafscale.fetch.errors import LostSegment
from kafscale.log.heads import Seg
from kafscale.log.places import Place, index_of
from kafscale.log.segment import SegmentError, parse_index
from kafscale.log.segment_view import SegmentView
from kafscale.runtime.shared_cache import SharedCache
from kafscale.storage.objects import ObjectNotFound, ObjectStore, PreconditionFailed, StoreUnavailable

INDEX_WORTH_BATCHES: Final = 4_096
"""A segment of more batches than this is read with its index: walking all its headers costs more."""
READS_OF_CORRUPT: Final = 2
"""A damaged transfer is read once more before the object is called corrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    keep_bytes: int
    gets_max: int = 32
    read_timeout_ms: int = 10_000


@dataclass(slots=True)
class CacheCounters:
    """Plain integers, read by the metrics page."""

    hits: int = 0
    loads: int = 0
    loaded_bytes: int = 0
    evictions: int = 0
    corrupt: int = 0
    refused: int = 0
    readaheads: int = 0
    reads_of_one_slice: int = 0
    reads_of_many_slices: int = 0


class Wanted(NamedTuple):
    place: Place
    seg: Seg


def span_of(run: Sequence[Wanted]) -> Place:
    """From the first byte to the last: `run` is a segment, or slices of one bundle in the order of their places."""
    return run[0].place._replace(end=run[-1].place.end)


class Loader:
    def __init__(
        self, store: ObjectStore, limits: CacheLimits, counters: CacheCounters, shared: SharedCache | None
    ) -> None:
        self._store = store
        self._limits = limits
        self._counters = counters
        self._shared = shared
        self._gets = asyncio.Semaphore(limits.gets_max)

    async def load(self, run: Sequence[Wanted]) -> Sequence[SegmentView | LostSegment]:
        """For each its view, or its damage. Raises StoreError if nothing could be read."""
        async with self._gets:
            found = None if self._shared is None else await self._shared_views(self._shared, run)
            if found is None:
                found = await self._stored_views(run)
            place, seg = run[0]
            index, view = index_of(place, seg), found[0]
            if index is not None and isinstance(view, SegmentView) and seg.batches > INDEX_WORTH_BATCHES:
                await self._adopt_index(index, view)
            return found

    async def _shared_views(
        self, shared: SharedCache, run: Sequence[Wanted]
    ) -> Sequence[SegmentView | LostSegment] | None:
        """From the shared cache; None when the store is to be read."""
        span, seg = span_of(run), run[0].seg
        data: bytes | memoryview | None
        if span.end is None:
            data = await shared.get(span.key, seg.etag, seg.size)
        else:
            data = await shared.get_range(span.key, seg.etag, span.start, span.end)
        if data is None:
            return None
        found = self._views(run, data)
        if _has_damage(found):
            await shared.discard(span.key, seg.etag)
            return None
        return found

    async def _stored_views(self, run: Sequence[Wanted]) -> Sequence[SegmentView | LostSegment]:
        span, seg = span_of(run), run[0].seg
        for _ in range(READS_OF_CORRUPT):
            data = await self._get(span)
            self._count(run)
            found = self._views(run, data)
            if not _has_damage(found):
                if self._shared is not None and span.end is None:
                    self._shared.fill(span.key, seg.etag, (data,))
                break
        return found

    def _count(self, run: Sequence[Wanted]) -> None:
        if len(run) > 1:
            self._counters.reads_of_many_slices += 1
        elif run[0].seg.is_slice:
            self._counters.reads_of_one_slice += 1

    def _views(self, run: Sequence[Wanted], data: bytes | memoryview) -> list[SegmentView | LostSegment]:
        """Views of one buffer. The checksum of each segment is compared with its commit record."""
        found: list[SegmentView | LostSegment] = []
        whole, origin = memoryview(data), run[0].place.start
        for place, seg in run:
            part = whole if len(run) == 1 else whole[place.start - origin :][: seg.size]
            try:
                found.append(SegmentView(seg, part))
            except SegmentError as error:
                self._counters.corrupt += 1
                found.append(LostSegment(key=place.name, reason=str(error)))
        return found

    async def _get(self, span: Place) -> bytes:
        try:
            async with asyncio.timeout(self._limits.read_timeout_ms / 1000):
                data = await span.read(self._store)
        except TimeoutError:
            raise StoreUnavailable(span.name, f"no answer within {self._limits.read_timeout_ms} ms") from None
        self._counters.loads += 1
        self._counters.loaded_bytes += len(data)
        return data

    async def _adopt_index(self, index: Place, view: SegmentView) -> None:
        """The index only saves time: without it, or with a wrong one, the headers of all batches are read."""
        try:
            async with asyncio.timeout(self._limits.read_timeout_ms / 1000):
                data = await index.read(self._store)
            usable = view.adopt_index(parse_index(data))
        except (ObjectNotFound, PreconditionFailed, StoreUnavailable, SegmentError, TimeoutError):
            usable = False
        self._counters.corrupt += not usable


def _has_damage(found: Sequence[SegmentView | LostSegment]) -> bool:
    return any(isinstance(each, LostSegment) for each in found)

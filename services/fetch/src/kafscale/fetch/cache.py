"""Whole segments in memory, by their places. Each is read from the store once, for all its readers.

An answer is a list of views of the segments here, so an entry is pinned, and counts, until the last answer that uses
it is gone. One budget covers what the cache keeps and what answers hold. Above `keep_bytes`, unpinned entries are
dropped, the least recently used first. Pinned ones may take HOLD_SHARE of the process's budget; then a load is refused,
not queued. At most `gets_max` GETs run at a time. No operation looks at all entries: there may be tens of thousands of
tiny segments, and one answer needs hundreds. A segment that is not here is read from the cache that instances share,
if there is one, else from the store; what comes from the store is put into the shared cache.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kafscale.fetch.errors import LostSegment, MemoryExhausted
from kafscale.fetch.segment_view import SegmentView
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.shared_cache import SharedCache
from kafscale.runtime.tracing import Span, start_child
from kafscale.storage.heads import Seg
from kafscale.storage.objects import (
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kafscale.storage.places import Place, index_of
from kafscale.storage.segment import SegmentError, parse_index

INDEX_WORTH_BATCHES: Final = 4_096
"""A segment of more batches than this is read with its index: walking all its headers costs more."""
ENTRY_COST_BYTES: Final = 2_048
"""What an entry takes in addition to its object, as measured, so that a cache of tiny segments is bounded too."""
HOLD_SHARE: Final = 0.75
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


class _Entry:
    __slots__ = ("ahead", "loaded", "pins", "place", "size", "view")

    def __init__(self, place: Place, size: int, loaded: asyncio.Future[SegmentView], *, ahead: bool) -> None:
        self.place = place
        self.size = size
        self.ahead = ahead  # read ahead, and not requested yet
        self.pins = 0
        self.view: SegmentView | None = None
        self.loaded = loaded


class Lease:
    """The segments of one answer. Pinned from `want` until `release`, which every path must reach."""

    __slots__ = ("_cache", "_entries")

    def __init__(self, cache: "SegmentCache") -> None:
        self._cache = cache
        self._entries: list[_Entry] = []

    def ready(self, place: Place, seg: Seg) -> SegmentView | None:
        """The segment if it is in memory now."""
        entry = self._cache.peek(place, seg)
        if entry is None:
            return None
        self._entries.append(entry)
        return entry.view

    def want(self, place: Place, seg: Seg) -> "asyncio.Future[SegmentView]":
        """Start to load it, or join a load that is under way. Raises MemoryExhausted."""
        entry = self._cache.begin(place, seg)
        self._entries.append(entry)
        return entry.loaded

    def release(self) -> None:
        entries, self._entries = self._entries, []
        for entry in entries:
            self._cache.unpin(entry)
        self._cache.trim()


class SegmentCache:
    """For one event loop; `tasks` owns the loads."""

    def __init__(
        self,
        store: ObjectStore,
        limits: CacheLimits,
        tasks: asyncio.TaskGroup,
        budget: MemoryBudget,
        shared: SharedCache | None = None,
    ) -> None:
        self._store = store
        self._shared = shared
        self._limits = limits
        self._budget = budget
        self._tasks = tasks
        self._entries: dict[Place, _Entry] = {}
        self._idle: OrderedDict[Place, _Entry] = OrderedDict()  # loaded, unpinned; least recently used first
        self._gets = asyncio.Semaphore(limits.gets_max)
        self._held_bytes = 0
        self._ahead_bytes = 0
        self.counters = CacheCounters()

    @property
    def held_bytes(self) -> int:
        """Of entries: kept, pinned, and reserved for loads under way."""
        return self._held_bytes

    def lease(self) -> Lease:
        return Lease(self)

    def peek(self, place: Place, seg: Seg) -> _Entry | None:
        """The entry, pinned, if it is loaded."""
        entry = self._entries.get(place)
        if entry is None or entry.view is None:
            return None
        self._pin(entry)
        self.counters.hits += 1
        return entry

    def begin(self, place: Place, seg: Seg) -> _Entry:
        """The entry, pinned; its load is under way, or was."""
        entry = self._entries.get(place)
        if entry is None:
            self._make_room(seg.size + ENTRY_COST_BYTES)
            entry = self._start(place, seg, ahead=False)
        self._pin(entry)
        return entry

    def _pin(self, entry: _Entry) -> None:
        self._asked_for(entry)
        self._idle.pop(entry.place, None)
        entry.pins += 1

    def unpin(self, entry: _Entry) -> None:
        entry.pins -= 1
        if not entry.pins and entry.view is not None:
            self._idle[entry.place] = entry

    def read_ahead(self, place: Place, seg: Seg) -> bool:
        """Load it for a later request. False when there is no room without dropping what is used.

        What was read ahead and is not asked for yet takes half of the memory at most: otherwise many
        readers would push out one another's segments before they come to them.
        """
        size = seg.size + ENTRY_COST_BYTES
        if place in self._entries:
            return True
        if self._ahead_bytes + size > self._limits.keep_bytes // 2:
            return False
        self._evict(self._limits.keep_bytes - size)
        fits = self._held_bytes + size <= self._limits.keep_bytes
        if not fits or not self._budget.reserve(size, share=HOLD_SHARE):
            return False
        self._ahead_bytes += size
        self.counters.readaheads += 1
        self._start(place, seg, ahead=True)
        return True

    def trim(self) -> None:
        self._evict(self._limits.keep_bytes)

    def _make_room(self, size: int) -> None:
        self._evict(self._limits.keep_bytes - size)
        if self._budget.reserve(size, share=HOLD_SHARE):
            return
        if self._held_bytes:
            self.counters.refused += 1
            raise MemoryExhausted(wanted_bytes=size, held_bytes=self._held_bytes)
        self._budget.force(size)  # larger than the whole budget: it must be readable if it is alone

    def _evict(self, target_bytes: int) -> None:
        while self._held_bytes > target_bytes and self._idle:
            self._drop(next(iter(self._idle.values())))
            self.counters.evictions += 1

    def _asked_for(self, entry: _Entry) -> None:
        if entry.ahead:
            entry.ahead = False
            self._ahead_bytes -= entry.size

    def _drop(self, entry: _Entry) -> None:
        self._asked_for(entry)
        self._idle.pop(entry.place, None)
        del self._entries[entry.place]
        self._held_bytes -= entry.size
        self._budget.release(entry.size)

    def _start(self, place: Place, seg: Seg, *, ahead: bool) -> _Entry:
        loaded: asyncio.Future[SegmentView] = asyncio.get_running_loop().create_future()
        entry = _Entry(place, seg.size + ENTRY_COST_BYTES, loaded, ahead=ahead)
        self._entries[place] = entry
        self._held_bytes += entry.size
        # In the trace of the request that starts the load. Requests that join it later show a wait.
        span = None if ahead else start_child("GET segment", {"kafscale.object": place.name})
        self._tasks.create_task(self._fill(entry, seg, span))
        return entry

    async def _fill(self, entry: _Entry, seg: Seg, span: Span | None) -> None:
        """In every case the waiters get a result or an error, and a failed entry is removed."""
        try:
            entry.view = await self._load(entry.place, seg)
        except (StoreError, LostSegment) as error:
            self._drop(entry)
            entry.loaded.set_exception(error)
            entry.loaded.exception()  # a read ahead has no waiter that would retrieve it
        else:
            entry.loaded.set_result(entry.view)
            if not entry.pins:
                self._idle[entry.place] = entry
                self.trim()
        finally:
            entry.loaded.cancel()
            if span is not None:
                span.end()

    async def _load(self, place: Place, seg: Seg) -> SegmentView:
        async with self._gets:
            view = None if self._shared is None else await self._shared_view(self._shared, place, seg)
            if view is None:
                view = await self._stored_view(place, seg)
            index = index_of(place, seg)
            if index is not None and seg.batches > INDEX_WORTH_BATCHES:
                await self._adopt_index(index, view)
            return view

    async def _shared_view(self, shared: SharedCache, place: Place, seg: Seg) -> SegmentView | None:
        """From the shared cache; None when the store is to be read."""
        data = await shared.get(place.name, seg.etag, seg.size)
        if data is None:
            return None
        try:
            return SegmentView(seg, data)
        except SegmentError:
            self.counters.corrupt += 1
            await shared.discard(place.name, seg.etag)
            return None

    async def _stored_view(self, place: Place, seg: Seg) -> SegmentView:
        for attempt in range(READS_OF_CORRUPT):
            data = await self._get(place)
            try:
                view = SegmentView(seg, data)
                break
            except SegmentError as error:
                self.counters.corrupt += 1
                if attempt + 1 == READS_OF_CORRUPT:
                    raise LostSegment(key=place.name, reason=str(error)) from error
        if self._shared is not None:
            self._shared.fill(place.name, seg.etag, (data,))
        return view

    async def _get(self, place: Place) -> bytes:
        try:
            async with asyncio.timeout(self._limits.read_timeout_ms / 1000):
                data = await place.read(self._store)
        except TimeoutError:
            raise StoreUnavailable(
                place.name, f"no answer within {self._limits.read_timeout_ms} ms"
            ) from None
        self.counters.loads += 1
        self.counters.loaded_bytes += len(data)
        return data

    async def _adopt_index(self, index: Place, view: SegmentView) -> None:
        """The index only saves time: without it, or with a wrong one, the headers of all batches are read."""
        try:
            async with asyncio.timeout(self._limits.read_timeout_ms / 1000):
                data = await index.read(self._store)
            usable = view.adopt_index(parse_index(data))
        except (ObjectNotFound, PreconditionFailed, StoreUnavailable, SegmentError, TimeoutError):
            usable = False
        self.counters.corrupt += not usable

"""Whole segments in memory, by their places. Each is read from the store once, for all its readers.

An answer is a list of views of the segments here, so an entry is pinned, and counts, until the last answer that uses
it is gone. One budget covers what the cache keeps and what answers hold. Above `keep_bytes`, unpinned entries are
dropped, the least recently used first. Pinned ones may take HOLD_SHARE of the process's budget; then a load is refused,
not queued. No operation looks at all entries: there may be tens of thousands of tiny segments, and one answer needs
hundreds.

Slices of one bundle that several partitions here need are one entry: one GET reads them into one buffer. A view of one
of them pins the buffer, so they are charged, pinned and dropped together. Where memory is short, a slice is read alone.

What is dropped is freed at once. So nothing here, and nothing of an answer, may be part of a reference cycle: the
garbage collector runs rarely, and it does not know that a small object holds megabytes (`test_garbage.py`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from kafscale.fetch.errors import LostSegment, MemoryExhausted
from kafscale.fetch.loads import CacheCounters, CacheLimits, Loader, Wanted, span_of
from kafscale.fetch.slices import run_around
from kafscale.log.heads import Seg
from kafscale.log.places import Place
from kafscale.log.segment_view import SegmentView
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.shared_cache import SharedCache
from kafscale.runtime.tracing import Span, start_child
from kafscale.storage.failures import without_frames
from kafscale.storage.objects import ObjectStore, StoreError

ENTRY_COST_BYTES: Final = 2_304
"""What a segment takes in addition to its bytes, as measured, so that a cache of tiny segments is bounded too."""
HOLD_SHARE: Final = 0.75


class _Part:
    """A segment, or a slice of a bundle. It does not know its entry: that would be a reference cycle."""

    __slots__ = ("loaded", "view", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.view: SegmentView | None = None
        self.loaded: asyncio.Future[SegmentView] = asyncio.get_running_loop().create_future()


class _Entry:
    """What one GET reads into one buffer."""

    __slots__ = ("ahead", "parts", "pins", "size")

    def __init__(self, run: Sequence[Wanted], size: int, *, ahead: bool) -> None:
        self.parts = tuple([_Part(wanted) for wanted in run])
        self.size = size
        self.ahead = ahead  # read ahead, and not requested yet
        self.pins = 0

    @property
    def is_loaded(self) -> bool:
        return any(part.view is not None for part in self.parts)


_Found = tuple[_Entry, _Part]


class Lease:
    """The segments of one answer. Pinned from `want` until `release`, which every path must reach."""

    __slots__ = ("_cache", "_entries")

    def __init__(self, cache: "SegmentCache") -> None:
        self._cache = cache
        self._entries: list[_Entry] = []

    def ready(self, place: Place) -> SegmentView | None:
        """The segment if it is in memory now."""
        found = self._cache.peek(place)
        if found is None:
            return None
        entry, part = found
        self._entries.append(entry)
        return part.view

    def want(self, place: Place, seg: Seg) -> "asyncio.Future[SegmentView]":
        """Start to load it, or join a load that is under way. Raises MemoryExhausted."""
        entry, part = self._cache.begin(place, seg)
        self._entries.append(entry)
        return part.loaded

    def release(self) -> None:
        entries, self._entries = self._entries, []
        for entry in entries:
            self._cache.unpin(entry)
        self._cache.trim()


Beside = Callable[[Seg], Sequence[Seg]]
"""The slices of the same bundle that partitions which are read here have in their tails."""


def _alone(_seg: Seg) -> Sequence[Seg]:
    return ()


class SegmentCache:
    """For one event loop; `tasks` owns the loads."""

    def __init__(
        self,
        store: ObjectStore,
        limits: CacheLimits,
        tasks: asyncio.TaskGroup,
        budget: MemoryBudget,
        shared: SharedCache | None = None,
        beside: Beside = _alone,
    ) -> None:
        self._limits = limits
        self._budget = budget
        self._tasks = tasks
        self._beside = beside
        self.counters = CacheCounters()
        self._loader = Loader(store, limits, self.counters, shared)
        self._by_place: dict[Place, _Found] = {}
        self._idle: OrderedDict[_Entry, None] = OrderedDict()  # loaded, unpinned; least recently used first
        self._held_bytes = 0
        self._ahead_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Of entries: kept, pinned, and reserved for loads under way."""
        return self._held_bytes

    def lease(self) -> Lease:
        return Lease(self)

    def peek(self, place: Place) -> _Found | None:
        """Its entry is pinned, if it is loaded."""
        found = self._by_place.get(place)
        if found is None or found[1].view is None:
            return None
        self._pin(found[0])
        self.counters.hits += 1
        return found

    def begin(self, place: Place, seg: Seg) -> _Found:
        """Its entry is pinned; its load is under way, or was."""
        found = self._by_place.get(place)
        if found is None:
            self._start(self._reserved(Wanted(place, seg)), ahead=False)
            found = self._by_place[place]
        self._pin(found[0])
        return found

    def _pin(self, entry: _Entry) -> None:
        self._asked_for(entry)
        self._idle.pop(entry, None)
        entry.pins += 1

    def unpin(self, entry: _Entry) -> None:
        entry.pins -= 1
        if not entry.pins and entry.is_loaded:
            self._idle[entry] = None

    def read_ahead(self, place: Place, seg: Seg) -> bool:
        """Load it for a later request. False when there is no room without dropping what is used.

        What was read ahead and is not asked for yet takes half of the memory at most: otherwise many
        readers would push out one another's segments before they come to them.
        """
        if place in self._by_place:
            return True
        wanted = Wanted(place, seg)
        run = self._run_of(wanted)
        for some in (run, [wanted]) if len(run) > 1 else (run,):
            size = _cost(some)
            if self._ahead_bytes + size <= self._limits.keep_bytes // 2 and self._reserve(size):
                self._ahead_bytes += size
                self.counters.readaheads += len(some)
                self._start(some, ahead=True)
                return True
        return False

    def trim(self) -> None:
        self._evict(self._limits.keep_bytes)

    # -- memory ----------------------------------------------------------------------------------

    def _run_of(self, wanted: Wanted) -> Sequence[Wanted]:
        """It, and the slices beside it that are not here yet and that the same GET can read."""
        place, seg = wanted
        if not seg.is_slice:
            return [wanted]
        missing = [other for other in self._beside(seg) if _beside(place, other) not in self._by_place]
        return [Wanted(_beside(place, each), each) for each in run_around(seg, missing)]

    def _reserved(self, wanted: Wanted) -> Sequence[Wanted]:
        """What to read with one GET; its memory is reserved. Raises MemoryExhausted."""
        run = self._run_of(wanted)
        if len(run) > 1 and self._reserve(_cost(run)):
            return run
        self._make_room(_cost([wanted]))
        return [wanted]

    def _reserve(self, size: int) -> bool:
        """Whether it fits into what the cache keeps."""
        self._evict(self._limits.keep_bytes - size)
        fits = self._held_bytes + size <= self._limits.keep_bytes
        return fits and self._budget.reserve(size, share=HOLD_SHARE)

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
            entry = next(iter(self._idle))
            self._drop(entry)
            self.counters.evictions += len(entry.parts)

    def _asked_for(self, entry: _Entry) -> None:
        if entry.ahead:
            entry.ahead = False
            self._ahead_bytes -= entry.size

    def _drop(self, entry: _Entry) -> None:
        self._asked_for(entry)
        self._idle.pop(entry, None)
        for part in entry.parts:
            self._forget(part)
        self._held_bytes -= entry.size
        self._budget.release(entry.size)

    def _forget(self, part: _Part) -> None:
        """A damaged slice of a bundle is forgotten before its entry is dropped, and may be in another by then."""
        found = self._by_place.get(part.wanted.place)
        if found is not None and found[1] is part:
            del self._by_place[part.wanted.place]

    # -- loads -----------------------------------------------------------------------------------

    def _start(self, run: Sequence[Wanted], *, ahead: bool) -> None:
        """The memory is reserved."""
        entry = _Entry(run, _cost(run), ahead=ahead)
        for part in entry.parts:
            self._by_place[part.wanted.place] = (entry, part)
        self._held_bytes += entry.size
        # In the trace of the request that starts the load. Requests that join it later show a wait.
        span = None if ahead else start_child("GET segment", {"kafscale.object": span_of(run).name})
        self._tasks.create_task(self._fill(entry, run, span))

    async def _fill(self, entry: _Entry, run: Sequence[Wanted], span: Span | None) -> None:
        """In every case the waiters get a result or an error, and a failed entry is removed."""
        try:
            try:
                found: Sequence[SegmentView | StoreError | LostSegment] = await self._loader.load(run)
            except StoreError as error:
                found = [without_frames(error)] * len(run)
            self._settle(entry, found)
        finally:
            for part in entry.parts:
                part.loaded.cancel()
            if span is not None:
                span.end()

    def _settle(self, entry: _Entry, found: Sequence[SegmentView | StoreError | LostSegment]) -> None:
        for part, outcome in zip(entry.parts, found, strict=True):
            if isinstance(outcome, SegmentView):
                part.view = outcome
            else:
                self._forget(part)
        if not entry.is_loaded:
            self._drop(entry)
        elif not entry.pins:
            self._idle[entry] = None
            self.trim()
        for part, outcome in zip(entry.parts, found, strict=True):
            if isinstance(outcome, SegmentView):
                part.loaded.set_result(outcome)
            else:
                part.loaded.set_exception(outcome)
                part.loaded.exception()  # a read ahead has no waiter that would retrieve it


def _cost(run: Sequence[Wanted]) -> int:
    """The bytes of the whole buffer, and of what is kept of each segment in it."""
    first, last = run[0], run[-1]
    return last.seg.position + last.seg.size - first.seg.position + len(run) * ENTRY_COST_BYTES


def _beside(place: Place, other: Seg) -> Place:
    """Of another slice of the same bundle."""
    return place._replace(start=other.position, end=other.position + other.size)

"""Reads the segments that a plan chose, of many partitions, as views in one pinned lease.

Segments in memory are served without waiting; the rest is loaded concurrently. A partition whose first segment cannot
be read answers an error; a later failure only ends its record set early. If an object is gone or replaced, the
metadata may be stale: it is read again once, and if it still names the object, the object is lost.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from kafscale.fetch.cache import Lease, SegmentCache
from kafscale.fetch.errors import LostSegment, MemoryExhausted, ReadFailure, RequestKind, code_for
from kafscale.fetch.locator import Locator
from kafscale.fetch.lookup import Lookup, PartitionRequest
from kafscale.fetch.plan import Cut, ResponseLimit, cut, expected_bytes
from kafscale.log.heads import Aborted, Seg
from kafscale.log.places import Place, place_of
from kafscale.log.segment import SegmentError
from kafscale.log.segment_view import SegmentView
from kafscale.log.segments import OffsetGap
from kafscale.log.state import LogState
from kafscale.storage.failures import without_frames
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed, StoreUnavailable
from kafscale.storage.task_groups import together

log = structlog.get_logger(__name__)

NOTHING: Final = Cut(parts=(), size=0, next_offset=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    join_segments_max: int
    readahead_segments: int
    wait_ms: int  # for all loads of one partition together


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """`full`: a limit ended the answer, so a wait for more data would add none."""

    size: int
    full: bool


class PartitionRead:
    """One partition of a Fetch: where it starts, how much it may have, and in the end its record set."""

    __slots__ = (
        "_aborted",
        "committed_only",
        "cut",
        "max_bytes",
        "planned",
        "segs",
        "spot",
        "upper",
        "views",
    )

    def __init__(self, spot: PartitionRequest, max_bytes: int) -> None:
        self.spot = spot
        self.max_bytes = max_bytes
        self.upper = 0
        self.planned = 0  # about how many bytes to load; 0: none this time
        self.segs: list[Seg] | None = None
        self.views: list[SegmentView] = []
        self.cut = NOTHING
        self.committed_only = False
        self._aborted: tuple[Aborted, ...] = ()  # of all that was planned

    def begin(self) -> None:
        """Forget what an earlier look has brought."""
        self.planned = 0
        self.segs = None
        self.views = []
        self.cut = NOTHING
        self._aborted = ()

    @property
    def aborted(self) -> tuple[Aborted, ...]:
        """The aborted transactions that the reader must know of for what was cut."""
        return tuple(each for each in self._aborted if each.first < self.cut.next_offset)

    def search_now(self, locator: Locator) -> bool:
        """Whether its aborted transactions were found in memory."""
        found = locator.aborted_now(self.state, self.offset, self._search_end) if self._searches else ()
        self._aborted = found or ()
        return found is not None

    async def search(self, locator: Locator) -> None:
        """In the state that named the segments: compaction may have taken a marker since, with what it aborted."""
        if self._searches:
            self._aborted = await locator.aborted(self.state, self.offset, self._search_end)

    @property
    def _searches(self) -> bool:
        return self.committed_only and self.state.transactional

    @property
    def _search_end(self) -> int:
        return min(self.upper, self.segs[-1].end) if self.segs else self.offset

    @property
    def offset(self) -> int:
        assert self.spot.offset is not None
        return self.spot.offset

    @property
    def left_some(self) -> bool:
        """The log holds more than the cut took."""
        return self.spot.readable and max(self.offset, self.cut.next_offset) < self.upper

    @property
    def state(self) -> LogState:
        assert self.spot.state is not None
        return self.spot.state


class Reader:
    def __init__(
        self, *, keyspace: Keyspace, cache: SegmentCache, locator: Locator, lookup: Lookup, limits: ReadLimits
    ) -> None:
        self._keyspace = keyspace
        self._cache = cache
        self._locator = locator
        self._lookup = lookup
        self._limits = limits
        self.lost_segments = 0

    async def read(self, asks: Sequence[PartitionRead], max_bytes: int, lease: Lease) -> ReadResult:
        """Fill every ask's cut within max_bytes. Failures are in the spots' errors."""
        self._plan(asks, max_bytes)
        missing = [ask for ask in asks if ask.planned and not self._take_ready(ask, lease)]
        if len(missing) == 1:
            await self._load(missing[0], lease)
        elif missing:
            await together(self._load(ask, lease) for ask in missing)
        result = self._cut(asks, max_bytes)
        for ask in asks:
            if ask.cut.size:
                self._read_ahead(ask)
        return result

    async def view(self, spot: PartitionRequest, seg: Seg, lease: Lease) -> SegmentView:
        """One segment. Raises one of ReadFailure; a missing object is lost unless retention took it."""
        place = self.place(spot, seg)
        view = lease.ready(place)
        if view is not None:
            return view
        loads = [lease.want(place, seg)]
        return (await self._collect(place, loads))[0]

    def place(self, spot: PartitionRequest, seg: Seg) -> Place:
        assert spot.topic is not None
        return place_of(self._keyspace, spot.topic.name, spot.partition, seg)

    # -- which segments --------------------------------------------------------------------------

    def _plan(self, asks: Sequence[PartitionRead], max_bytes: int) -> None:
        """Share max_bytes out in order, by what the segments are expected to hold."""
        left = ResponseLimit(max_bytes)
        for ask in asks:
            ask.begin()
            if not ask.spot.readable or ask.offset >= ask.upper or left.exhausted:
                continue
            allowed = left.allow(ask.max_bytes)
            if not allowed and not left.at_least_one:
                continue
            ask.planned = max(1, allowed)
            ask.segs = self._locator.choose_now(
                ask.state, ask.offset, ask.planned, count_max=self._limits.join_segments_max
            )
            if ask.segs is None:
                left.take(ask.planned)
            else:
                left.take(min(ask.planned, sum(expected_bytes(seg, ask.offset) for seg in ask.segs)))

    def _take_ready(self, ask: PartitionRead, lease: Lease) -> bool:
        """True when all that was planned is in memory."""
        if not ask.segs:
            return False
        for seg in ask.segs:
            view = lease.ready(self.place(ask.spot, seg))
            if view is None:
                return False
            ask.views.append(view)
        return ask.search_now(self._locator)

    # -- what is not in memory -------------------------------------------------------------------

    async def _load(self, ask: PartitionRead, lease: Lease) -> None:
        try:
            try:
                await self._load_once(ask, lease)
            except (ObjectNotFound, PreconditionFailed) as gone:
                await self._look_again(ask, lease, without_frames(gone))
        except ReadFailure as failure:
            self._report(failure)
            ask.views = []
            ask.spot.error = code_for(failure, RequestKind.FETCH)

    async def _look_again(
        self, ask: PartitionRead, lease: Lease, gone: ObjectNotFound | PreconditionFailed
    ) -> None:
        before = ask.segs[0] if ask.segs else None
        await self._renew(ask)
        if not ask.spot.readable:
            return
        ask.segs = None
        try:
            await self._load_once(ask, lease)
        except (ObjectNotFound, PreconditionFailed) as again:
            same = ask.segs is not None and before in ask.segs
            reason = str(gone) if same else str(again)
            raise LostSegment(key=again.key, reason=reason) from again

    async def _renew(self, ask: PartitionRead) -> None:
        ask.spot.fresh = True
        await self._lookup.review([ask.spot], RequestKind.FETCH)
        ask.spot.fresh = False
        ask.upper = min(ask.upper, ask.state.next)

    async def _load_once(self, ask: PartitionRead, lease: Lease) -> None:
        if ask.segs is None:
            ask.segs = await self._locator.load_for(
                ask.state, ask.offset, ask.planned, count_max=self._limits.join_segments_max
            )
        if ask.offset >= ask.upper:
            return
        if not ask.segs:
            raise OffsetGap(due=ask.offset, found=None)
        await ask.search(self._locator)
        ask.views = await self._collect(self.place(ask.spot, ask.segs[0]), self._begin(ask, lease))

    def _begin(self, ask: PartitionRead, lease: Lease) -> "list[asyncio.Future[SegmentView]]":
        """Start every load; when memory runs out, as many as fit."""
        loads: list[asyncio.Future[SegmentView]] = []
        for seg in ask.segs or ():
            try:
                loads.append(lease.want(self.place(ask.spot, seg), seg))
            except MemoryExhausted:
                if not loads:
                    raise
                break
        return loads

    async def _collect(self, place: Place, loads: "list[asyncio.Future[SegmentView]]") -> list[SegmentView]:
        """The views up to the first that failed; raises the failure of the first."""
        pending = [load for load in loads if not load.done()]
        if pending:
            await asyncio.wait(pending, timeout=self._limits.wait_ms / 1000)
        views: list[SegmentView] = []
        for load in loads:
            if not load.done():
                failure: BaseException | None = StoreUnavailable(place.name, "no answer in time")
            else:
                failure = load.exception()
            if failure is not None:
                if not views:
                    raise failure
                break
            views.append(load.result())
        return views

    def _report(self, failure: BaseException) -> None:
        if isinstance(failure, LostSegment):
            self.lost_segments += 1
            log.error("committed segment lost", key=failure.key, reason=failure.reason)
        elif isinstance(failure, OffsetGap):
            self.lost_segments += 1
            log.error("committed offsets lost", due=failure.due, found=failure.found)
        else:
            log.warning("segment read failed", reason=str(failure))

    # -- what is served --------------------------------------------------------------------------

    def _cut(self, asks: Sequence[PartitionRead], max_bytes: int) -> ReadResult:
        left = ResponseLimit(max_bytes)
        total = 0
        squeezed = False
        for ask in asks:
            allowed = left.allow(ask.max_bytes)
            if ask.views:
                self._cut_one(ask, allowed, at_least_one=left.at_least_one)
                left.take(ask.cut.size)
                total += ask.cut.size
            squeezed = squeezed or (allowed < ask.max_bytes and ask.left_some)
        return ReadResult(size=total, full=squeezed or all(ask.left_some for ask in asks))

    def _cut_one(self, ask: PartitionRead, allowed: int, *, at_least_one: bool) -> None:
        try:
            ask.cut = cut(ask.views, ask.offset, ask.upper, allowed, at_least_one=at_least_one)
        except (SegmentError, OffsetGap) as failure:
            lost = LostSegment(key=self.place(ask.spot, ask.views[0].seg).name, reason=str(failure))
            self._report(lost)
            ask.spot.error = code_for(lost, RequestKind.FETCH)

    def _read_ahead(self, ask: PartitionRead) -> None:
        """A reader that did not get all data fetches again: load as much again, at least the setting's number."""
        if not ask.left_some or not self._limits.readahead_segments:
            return
        reached = ask.cut.next_offset
        count = max(self._limits.readahead_segments, len(ask.views))
        segs = self._locator.choose_now(ask.state, reached, 1 << 62, count_max=count + 1)
        if segs is None:
            self._locator.warm(
                ask.state, reached
            )  # the reader's next fetch comes before a wait here would end
            return
        if segs and segs[0].base < reached:
            segs = segs[1:]  # the rest of it is in memory
        for seg in segs[:count]:
            if not self._cache.read_ahead(self.place(ask.spot, seg), seg):
                return

"""Offsets by time, and the ends of leader epochs.

By time means the first record, not the first batch, at or after the time: segments are skipped by their newest
timestamp, batches by theirs, and one batch is opened, beside the event loop (`batch_thread.py`) and only as far as
needed. A batch that cannot be opened (brokers store batches unread), or not within the limits of bytes, records and
time, answers its first offset, which is never too late.

A batch that may hold more than ORDINARY_RECORDS or ORDINARY_BYTES is opened in a lane of its own, which rests as long
as it works. So large batches delay only searches of large batches. One that is beyond the limits is remembered, and not
opened again: a client could send the same request for ever.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from kafscale.fetch.batch_thread import BatchThread, Lane, OutOfTime
from kafscale.fetch.cache import SegmentCache
from kafscale.fetch.locator import Locator
from kafscale.fetch.lookup import PartitionRequest
from kafscale.fetch.reader import Reader
from kafscale.log.heads import Seg
from kafscale.log.isolation import visible_end
from kafscale.log.segment_view import SegmentView
from kafscale.log.state import LogState
from kafscale.wire.buffers import Buffer, Steps, T
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import places_in
from kafscale.wire.records import read_batch_header

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2

OPENED_BYTES_MAX: Final = 16 << 20
"""Bytes decompressed from one batch. Producers fill batches up to one or a few megabytes."""
OPENED_RECORDS_MAX: Final = 250_000
"""Records read in one batch: about a quarter of a second of work, in pieces."""
OPENED_WITHIN_S: Final = 5.0
"""For one batch, with the waits for the thread."""
OPENED_AT_ONCE: Final = 4
ORDINARY_BYTES: Final = 4 << 20
ORDINARY_RECORDS: Final = 10_000
"""Of a batch that others wait for: some 10 ms of work."""
LARGE_AT_ONCE: Final = 2
REFUSED_MAX: Final = 4_096
"""Batches beyond the limits that are remembered."""
LIES_MAX: Final = 16
"""Batches of one request that took what a limit allows, or have no record as new as their header says."""
STEP_RECORDS: Final = 500
HEADERS_PER_TURN: Final = 1_000
Place = tuple[int, int]
"""The offset and the timestamp of a record."""
NOT_THERE: Final[Place] = (NO_OFFSET, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place in a log, as ListOffsets answers it; `NOWHERE` is not an error. `places`: all that v0 answers."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    epoch: int = NO_EPOCH
    places: tuple[int, ...] = ()


NOWHERE: Final = Point(offset=NO_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    epoch: int
    offset: int


UNDEFINED: Final = EpochEnd(epoch=NO_EPOCH, offset=NO_OFFSET)


class OffsetFinder:
    """Every method takes a spot whose state is new enough for the request, and raises one of ReadFailure."""

    def __init__(self, reader: Reader, locator: Locator, cache: SegmentCache, thread: BatchThread) -> None:
        self._reader = reader
        self._locator = locator
        self._cache = cache
        self._openings = Openings(thread)

    def begin(self) -> "Search":
        """One for each request."""
        return Search(self._openings)

    async def earliest(self, spot: PartitionRequest) -> Point:
        state = _state(spot)
        epoch = _epoch(spot)
        async for seg in self._locator.segments_from(state, state.log_start):
            epoch = seg.epoch
            break
        return Point(offset=state.log_start, epoch=epoch)

    def latest(self, spot: PartitionRequest, *, committed_only: bool) -> Point:
        state = _state(spot)
        end = visible_end(state, committed_only=committed_only)
        return Point(offset=end, epoch=_epoch(spot))

    async def at_time(
        self, spot: PartitionRequest, timestamp: int, search: "Search", *, committed_only: bool
    ) -> Point:
        """The first record at or after `timestamp`."""
        state = _state(spot)
        upper = visible_end(state, committed_only=committed_only)
        async for seg in self._locator.segments_from(state, state.log_start):
            if seg.base >= upper:
                break
            if seg.max_ts < timestamp:
                continue
            found = await self._in_segment(spot, seg, state.log_start, timestamp, search)
            if found is not None:
                return found if found.offset < upper else NOWHERE
        return NOWHERE

    async def newest(self, spot: PartitionRequest, search: "Search") -> Point:
        """The first of the records with the greatest timestamp."""
        state = _state(spot)
        newest: Seg | None = None
        newest_ts = NO_TIMESTAMP
        async for seg in self._locator.segments_from(state, state.log_start):
            max_ts = seg.max_ts
            if seg.base < state.log_start and max_ts > newest_ts:
                max_ts = await self._newest_left(spot, seg, state.log_start, search)
            if newest is None or max_ts > newest_ts:
                newest, newest_ts = seg, max_ts
        if newest is None:
            return NOWHERE
        found = await self._in_segment(spot, newest, state.log_start, newest_ts, search)
        return found or NOWHERE

    async def before(self, spot: PartitionRequest, timestamp: int, count: int, *, wall_ms: int) -> Point:
        """ListOffsets 0: up to `count` places to begin at, newest first, none written after `timestamp`."""
        state = _state(spot)
        if count <= 0:
            return NOWHERE
        if timestamp == EARLIEST:
            return Point(offset=NO_OFFSET, places=(state.log_start,))
        latest = timestamp == LATEST
        places = deque[int](maxlen=count)
        if not latest or count > 1:
            async for seg in self._locator.segments_from(state, state.log_start):
                if latest or seg.created_ms <= timestamp:
                    places.append(max(seg.base, state.log_start))
        if latest or wall_ms <= timestamp:
            places.append(state.next)
        return Point(offset=NO_OFFSET, places=tuple(reversed(places)))

    async def epoch_end(self, spot: PartitionRequest, epoch: int) -> EpochEnd:
        """Where the records of `epoch` and of all before it end. UNDEFINED for an epoch that no owner has had."""
        state, current = _state(spot), _epoch(spot)
        if epoch > current:
            return UNDEFINED
        if epoch == current:
            return EpochEnd(epoch=current, offset=state.next)
        return end_of(await self._locator.epochs(state), epoch, state)

    async def _newest_left(self, spot: PartitionRequest, seg: Seg, log_start: int, search: "Search") -> int:
        """The greatest timestamp that is not deleted of a segment that the log starts within."""
        lease = self._cache.lease()
        try:
            view = await self._reader.view(spot, seg, lease)
            newest = NO_TIMESTAMP
            async for position in _batches(view):
                if view.last_offset_at(position) < log_start:
                    continue
                in_batch = view.max_timestamp_at(position)
                if view.offset_at(position) < log_start and in_batch > newest:
                    found = await search.open(view, position, partial(newest_in, log_start))
                    in_batch = in_batch if found is None else found
                newest = max(newest, in_batch)
            return newest
        finally:
            lease.release()

    async def _in_segment(
        self, spot: PartitionRequest, seg: Seg, log_start: int, timestamp: int, search: "Search"
    ) -> Point | None:
        """The first record of the segment from `log_start` on with at least this timestamp."""
        lease = self._cache.lease()
        try:
            view = await self._reader.view(spot, seg, lease)
            async for position in _batches(view):
                if view.last_offset_at(position) < log_start or view.max_timestamp_at(position) < timestamp:
                    continue
                first = view.offset_at(position)
                found = await search.open(view, position, partial(first_in, log_start, timestamp))
                if found is None:
                    found = max(log_start, first), view.max_timestamp_at(position)
                if found is not NOT_THERE:
                    return Point(offset=found[0], timestamp=found[1], epoch=view.seg.epoch)
                if first >= log_start:
                    search.lied()
            return None
        finally:
            lease.release()


class Openings:
    """The lanes, and the batches beyond the limits."""

    def __init__(self, thread: BatchThread) -> None:
        self._ordinary = Lane(thread, at_once=OPENED_AT_ONCE)
        self._large = Lane(thread, at_once=LARGE_AT_ONCE, rests=True)
        self._refused: OrderedDict[tuple[str, int, int], None] = OrderedDict()

    async def open(
        self, view: SegmentView, position: int, look: Callable[[Iterator[list[Place]]], Steps[T]]
    ) -> T:
        """What `look` returns of the batch. Raises WireError (MESSAGE_TOO_LARGE beyond the limits) and OutOfTime."""
        batch = view.slice(position, view.batch_end(position))
        until_s = asyncio.get_running_loop().time() + OPENED_WITHIN_S
        if read_batch_header(batch).records_count <= ORDINARY_RECORDS:
            try:
                return await self._ordinary.finish(look(_places(batch, ORDINARY_BYTES)), until_s=until_s)
            except WireError as refused:
                if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                    raise
        key = (view.seg.etag, view.seg.position, position)
        return await self._large.finish(self._once(key, batch, look), until_s=until_s)

    def _once(
        self, key: tuple[str, int, int], batch: memoryview, look: Callable[[Iterator[list[Place]]], Steps[T]]
    ) -> Steps[T]:
        """Asked when the lane has a place, as those who waited may ask for the same batch."""
        if key in self._refused:
            raise WireError("record batch", "it was too large before", code=ErrorCode.MESSAGE_TOO_LARGE)
        try:
            return (yield from look(_places(batch, OPENED_BYTES_MAX)))
        except WireError as refused:
            if refused.code is ErrorCode.MESSAGE_TOO_LARGE:
                self._refused[key] = None
                if len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
            raise


class Search:
    """The batches that one request opens. A header is trusted until its records are read. After too many headers were
    wrong, or too many batches took too long, no further batch is opened."""

    __slots__ = ("_left", "_openings")

    def __init__(self, openings: Openings) -> None:
        self._openings = openings
        self._left = LIES_MAX

    async def open(
        self, view: SegmentView, position: int, look: Callable[[Iterator[list[Place]]], Steps[T]]
    ) -> T | None:
        """None: the batch cannot be opened, or not within the limits."""
        if not self._left:
            return None
        try:
            return await self._openings.open(view, position, look)
        except WireError as refused:
            if refused.code is ErrorCode.MESSAGE_TOO_LARGE:
                self.lied()
        except OutOfTime:
            self.lied()
        return None

    def lied(self) -> None:
        self._left = max(0, self._left - 1)


def end_of(starts: Sequence[tuple[int, int]], epoch: int, state: LogState) -> EpochEnd:
    """From the complete history: the greatest epoch with records up to `epoch`, and the next one's start."""
    floor = epoch
    for at, start in starts:
        if at > epoch:
            return EpochEnd(epoch=floor, offset=start)
        floor = at
    return EpochEnd(epoch=floor, offset=state.next)


async def _batches(view: SegmentView) -> AsyncIterator[int]:
    """The starts of a segment's batches; of many tiny ones a piece at a time, so that the loop runs in between."""
    position = view.start
    while position < view.end:
        starts = list(islice(view.batches(position), HEADERS_PER_TURN))
        for start in starts:
            yield start
        position = view.batch_end(starts[-1])
        await asyncio.sleep(0)


def first_in(log_start: int, timestamp: int, batch: Iterator[list[Place]]) -> Steps[Place]:
    """(offset, timestamp) of the batch's first record from `log_start` on with at least this timestamp, or NOT_THERE.
    Raises WireError when it cannot be opened, or not within the limits."""
    for places in batch:
        for offset, time in places:
            if time >= timestamp and offset >= log_start:
                return offset, time
        yield
    return NOT_THERE


def newest_in(log_start: int, batch: Iterator[list[Place]]) -> Steps[int]:
    """The greatest timestamp of the batch's records from `log_start` on. Raises as `first_in`."""
    newest = NO_TIMESTAMP
    for places in batch:
        newest = max([newest, *(time for offset, time in places if offset >= log_start)])
        yield
    return newest


def _places(batch: Buffer, bytes_max: int) -> Iterator[list[Place]]:
    """The places of the batch's records, some at a time."""
    places = places_in(batch, bytes_max=bytes_max)
    for _ in range(0, OPENED_RECORDS_MAX, STEP_RECORDS):
        some = list(islice(places, STEP_RECORDS))
        if not some:
            return
        yield some
    raise WireError("record batch", f"over {OPENED_RECORDS_MAX} records", code=ErrorCode.MESSAGE_TOO_LARGE)


def _epoch(spot: PartitionRequest) -> int:
    assert spot.topic is not None, spot.wanted
    return _state(spot).leader_epoch(spot.topic)


def _state(spot: PartitionRequest) -> LogState:
    assert spot.state is not None, spot.wanted
    return spot.state

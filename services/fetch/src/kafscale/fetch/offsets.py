"""Offsets by time, and epochs' ends: questions about a log's history.

By time means the first record, not the first batch, at or after the time: segments are passed over by their
newest timestamp, batches by theirs, and one batch is opened. A batch that cannot be opened (brokers store
batches unread) answers its first offset, which is never too late.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.fetch.cache import SegmentCache
from kafscale.fetch.locator import Locator
from kafscale.fetch.logstate import LogState
from kafscale.fetch.lookup import Spot
from kafscale.fetch.reader import Reader
from kafscale.fetch.segment_view import SegmentView
from kafscale.storage.heads import Seg
from kafscale.wire.errors import WireError
from kafscale.wire.records import records_in

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2


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


class OffsetFinder:
    """Every method takes a spot whose state is as new as the question demands; raises one of ReadFailure."""

    def __init__(self, reader: Reader, locator: Locator, cache: SegmentCache) -> None:
        self._reader = reader
        self._locator = locator
        self._cache = cache

    async def earliest(self, spot: Spot) -> Point:
        state = _state(spot)
        epoch = state.epoch
        async for seg in self._locator.from_offset(state, state.log_start):
            epoch = seg.epoch
            break
        return Point(offset=state.log_start, epoch=NO_EPOCH if epoch is None else epoch)

    def latest(self, spot: Spot, *, committed_only: bool) -> Point:
        state = _state(spot)
        end = state.lso if committed_only else state.next
        return Point(offset=end, epoch=NO_EPOCH if state.epoch is None else state.epoch)

    async def at_time(self, spot: Spot, timestamp: int, *, committed_only: bool) -> Point:
        """The first record at or after `timestamp`."""
        state = _state(spot)
        upper = state.lso if committed_only else state.next
        async for seg in self._locator.from_offset(state, state.log_start):
            if seg.base >= upper:
                break
            if seg.max_ts < timestamp:
                continue
            found = await self._in_segment(spot, seg, state.log_start, timestamp)
            if found is not None:
                return found if found.offset < upper else NOWHERE
        return NOWHERE

    async def newest(self, spot: Spot) -> Point:
        """The first of the records with the greatest timestamp."""
        state = _state(spot)
        newest: Seg | None = None
        newest_ts = NO_TIMESTAMP
        async for seg in self._locator.from_offset(state, state.log_start):
            max_ts = seg.max_ts
            if seg.base < state.log_start and max_ts > newest_ts:
                max_ts = await self._newest_left(spot, seg, state.log_start)
            if newest is None or max_ts > newest_ts:
                newest, newest_ts = seg, max_ts
        if newest is None:
            return NOWHERE
        found = await self._in_segment(spot, newest, state.log_start, newest_ts)
        return found or NOWHERE

    async def before(self, spot: Spot, timestamp: int, count: int, *, wall_ms: int) -> Point:
        """ListOffsets 0: up to `count` places to begin at, newest first, none written after `timestamp`."""
        state = _state(spot)
        if count <= 0:
            return NOWHERE
        if timestamp == EARLIEST:
            return Point(offset=NO_OFFSET, places=(state.log_start,))
        latest = timestamp == LATEST
        places = deque[int](maxlen=count)
        if not latest or count > 1:
            async for seg in self._locator.from_offset(state, state.log_start):
                if latest or seg.created_ms <= timestamp:
                    places.append(max(seg.base, state.log_start))
        if latest or wall_ms <= timestamp:
            places.append(state.next)
        return Point(offset=NO_OFFSET, places=tuple(reversed(places)))

    async def epoch_end(self, spot: Spot, epoch: int) -> EpochEnd:
        """Where the records of `epoch` and of all before it end."""
        state = _state(spot)
        current = state.epoch
        if current is None:
            return EpochEnd(epoch=epoch, offset=state.next)
        if epoch >= current:
            return EpochEnd(epoch=current, offset=state.next)
        return end_of(await self._locator.epochs(state), epoch, state)

    async def _newest_left(self, spot: Spot, seg: Seg, log_start: int) -> int:
        """The greatest timestamp that is not deleted of a segment that the log starts within."""
        lease = self._cache.lease()
        try:
            return newest_from(await self._reader.view(spot, seg, lease), log_start)
        finally:
            lease.release()

    async def _in_segment(self, spot: Spot, seg: Seg, log_start: int, timestamp: int) -> Point | None:
        lease = self._cache.lease()
        try:
            view = await self._reader.view(spot, seg, lease)
            return first_at_time(view, log_start, timestamp)
        finally:
            lease.release()


def end_of(starts: Sequence[tuple[int, int]], epoch: int, state: LogState) -> EpochEnd:
    """From the complete history: the greatest epoch with records up to `epoch`, and the next one's start."""
    floor = epoch
    for at, start in starts:
        if at > epoch:
            return EpochEnd(epoch=floor, offset=start)
        floor = at
    return EpochEnd(epoch=floor, offset=state.next)


def first_at_time(view: SegmentView, log_start: int, timestamp: int) -> Point | None:
    """The first record of the segment from `log_start` on with at least this timestamp."""
    for position in view.batches():
        if view.last_offset_at(position) < log_start or view.max_timestamp_at(position) < timestamp:
            continue
        batch = view.slice(position, view.batch_end(position))
        try:
            for record in records_in(batch):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return Point(offset=record.offset, timestamp=record.timestamp, epoch=view.seg.epoch)
        except WireError:
            return Point(
                offset=max(log_start, view.offset_at(position)),
                timestamp=view.max_timestamp_at(position),
                epoch=view.seg.epoch,
            )
    return None


def newest_from(view: SegmentView, log_start: int) -> int:
    """The greatest timestamp of the segment's records from `log_start` on."""
    newest = NO_TIMESTAMP
    for position in view.batches():
        if view.last_offset_at(position) < log_start:
            continue
        in_batch = view.max_timestamp_at(position)
        if view.offset_at(position) < log_start and in_batch > newest:
            in_batch = _newest_in_batch(view, position, log_start)
        newest = max(newest, in_batch)
    return newest


def _newest_in_batch(view: SegmentView, position: int, log_start: int) -> int:
    """Of a batch that the log starts within; one that cannot be opened answers for all its records."""
    batch = view.slice(position, view.batch_end(position))
    try:
        times = [record.timestamp for record in records_in(batch) if record.offset >= log_start]
    except WireError:
        return view.max_timestamp_at(position)
    return max(times, default=NO_TIMESTAMP)


def _state(spot: Spot) -> LogState:
    assert spot.state is not None, spot.wanted
    return spot.state

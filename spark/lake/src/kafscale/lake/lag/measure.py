"""How far behind groups are: in records, in bytes and in time, and when what they have not read will be gone.

The time lag is no guess from samples: it is the age of the first record that the group has not read, and that record is
in the object store, two small reads away. So it is right for a group first seen a second ago and hours behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.catalog import Lake, Log, by_place
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.lag.first_unread import FirstUnread, first_unread
from kafscale.lake.lag.positions import Position
from kafscale.log.heads import Seg
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed
from kafscale.storage.task_groups import gather_bounded

READS_AT_ONCE: Final = 8
KNOWN_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """One group on one partition. None: not applicable, or unknown. Without a committed offset, all that is stored is
    unread, and nothing is lost."""

    group: str
    topic: str
    partition: int
    committed: int | None
    log_start: int
    log_end: int
    records: int  # not read yet, as offsets count them
    lost: int  # not read, and gone
    bytes: int
    stable_end: int  # the last stable offset: a read_committed consumer reads below it
    stable_records: int  # not read yet, below the stable end
    ahead: int = 0  # how far the committed offset is beyond the log's end
    time_ms: int | None = None  # age of the first record that was not read
    expires_in_ms: int | None = None  # until retention by time takes that record
    room_bytes: int | None = None  # that can be written before retention by size takes it
    is_empty: bool = False  # no record is left: only markers of transactions, or what compaction has removed

    @property
    def readable(self) -> int:
        """What the group can read and has not. Nobody knows whether it is read_committed. If it has committed more
        than such a group can read, it is not, and all records count. Many clients commit the offset of a marker and
        wait there, so a marker alone is nothing to read."""
        if self.is_empty:
            return 0
        is_uncommitted = self.committed is not None and self.committed > self.stable_end
        return self.records if is_uncommitted else self.stable_records


class Known:
    """First unread records that were looked up already. They stay where they are while nobody commits, so who
    measures again and again reads only for groups that moved."""

    def __init__(self, entries_max: int = KNOWN_MAX) -> None:
        self._entries: OrderedDict[tuple[str, int], FirstUnread] = OrderedDict()
        self._entries_max = entries_max

    def get(self, seg: Seg, offset: int) -> FirstUnread | None:
        found = self._entries.get((seg.etag, offset))
        if found is not None:
            self._entries.move_to_end((seg.etag, offset))
        return found

    def put(self, seg: Seg, offset: int, found: FirstUnread) -> None:
        self._entries[seg.etag, offset] = found
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)


async def measure(
    lake: Lake, logs: Iterable[Log], positions: Sequence[Position], now_ms: int, known: Known | None = None
) -> list[Lag]:
    """In the order of the positions. Each that is behind costs two small reads of one segment, unless it is known.

    The logs must be read after the positions. Otherwise a group that keeps up seems to be ahead of its log.

    Raises StoreError. A segment that went away meanwhile, or that is corrupt, only leaves the time unknown.
    """
    places = by_place(logs)
    remembered = Known() if known is None else known
    placed = [(places.get((each.topic, each.partition)), each) for each in positions]
    works = (_measure_one(lake, log, each, now_ms, remembered) for log, each in placed if log is not None)
    return await gather_bounded(works, READS_AT_ONCE)


async def _measure_one(lake: Lake, log: Log, position: Position, now_ms: int, known: Known) -> Lag:
    begins = position.offset.offset if position.offset is not None else log.start
    first = max(begins, log.start)
    lag = Lag(
        group=position.group,
        topic=position.topic,
        partition=position.partition,
        committed=position.offset.offset if position.offset is not None else None,
        log_start=log.start,
        log_end=log.end,
        records=max(0, log.end - first),
        stable_end=log.last_stable_offset,
        stable_records=max(0, log.last_stable_offset - first),
        lost=max(0, log.start - begins),
        ahead=max(0, begins - log.end),
        bytes=0,
    )
    unread = log.between(begins, log.end)
    if not unread:
        return lag
    found = known.get(unread[0], first)
    if found is None:
        try:
            found = await first_unread(lake, log, unread, first)
        except (ObjectNotFound, PreconditionFailed, CorruptSegment):
            return replace(lag, bytes=sum(seg.size for seg in unread))
        if found.time_ms is not None:
            known.put(unread[0], first, found)
    behind = sum(seg.size for seg in unread[1:])
    lag = replace(lag, bytes=found.bytes + behind, room_bytes=_room(log, behind), is_empty=found.is_empty)
    if found.time_ms is None:
        return lag
    retention_ms = log.topic.retention_ms
    expires = log.topic.deletes_records and retention_ms >= 0
    return replace(
        lag,
        time_ms=max(0, now_ms - found.time_ms),
        expires_in_ms=max(0, unread[0].max_ts + retention_ms - now_ms) if expires else None,
    )


def _room(log: Log, behind: int) -> int | None:
    """Kafka lets the oldest segment go once those behind it hold `retention.bytes`."""
    if not log.topic.deletes_records or log.topic.retention_bytes < 0:
        return None
    return max(0, log.topic.retention_bytes - behind)

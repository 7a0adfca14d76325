"""How far behind groups are: in records, in bytes and in time, and when what they have not read will be gone.

The time lag is no guess from samples: it is the age of the first record that the group has not read, and that record is
in the object store, one read away. So it is right for a group first seen a second ago and hours behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.catalog import Lake, Log, by_place
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.lag.commits import Commit
from kafscale.lake.scan import parse
from kafscale.storage.heads import Seg

READS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """One group on one partition. None: it does not apply, or nobody can know."""

    group: str
    topic: str
    partition: int
    committed: int
    log_start: int
    log_end: int
    records: int  # not read yet, as offsets count them
    lost: int  # not read, and gone
    bytes: int
    time_ms: int | None = None  # age of the first record that was not read
    expires_in_ms: int | None = None  # until retention by time takes that record


async def measure(lake: Lake, logs: Iterable[Log], commits: Sequence[Commit], now_ms: int) -> list[Lag]:
    """In the order of the commits. Each that is behind costs a read of one segment."""
    places = by_place(logs)
    slots = asyncio.Semaphore(READS_AT_ONCE)

    async def one(commit: Commit) -> Lag | None:
        log = places.get((commit.topic, commit.partition))
        if log is None:
            return None
        async with slots:
            return await _measure_one(lake, log, commit, now_ms)

    found = await asyncio.gather(*(one(commit) for commit in commits))
    return [lag for lag in found if lag is not None]


async def _measure_one(lake: Lake, log: Log, commit: Commit, now_ms: int) -> Lag:
    committed = commit.offset.offset
    lag = Lag(
        group=commit.group,
        topic=commit.topic,
        partition=commit.partition,
        committed=committed,
        log_start=log.start,
        log_end=log.end,
        records=max(0, log.end - max(committed, log.start)),
        lost=max(0, log.start - committed),
        bytes=0,
    )
    unread = log.between(committed, log.end)
    if not unread:
        return lag
    first_bytes, first_ms = await _first_unread(lake, log, unread[0], max(committed, log.start))
    lag = replace(lag, bytes=first_bytes + sum(seg.size for seg in unread[1:]))
    if first_ms is None:
        return lag
    retention_ms = log.topic.retention_ms
    expires = log.topic.deletes_records and retention_ms >= 0
    return replace(
        lag,
        time_ms=max(0, now_ms - first_ms),
        expires_in_ms=max(0, unread[0].max_ts + retention_ms - now_ms) if expires else None,
    )


async def _first_unread(lake: Lake, log: Log, seg: Seg, offset: int) -> tuple[int, int | None]:
    """Bytes of the segment from that offset's batch on, and the time of the first record there."""
    body = await lake.fetch(log, seg)
    heads = parse(body, lake.key_of(log, seg), seg)
    heads = heads[heads["base_offset"] + heads["last_offset_delta"] >= offset]
    size = int(heads["size"].sum())
    for batch in read_columns(body, heads[:1], Wanted(columns=("timestamp",), first=offset)):
        if batch.num_rows:
            first = batch["timestamp"].cast("int64")[0].as_py()
            return size, first if first >= 0 else None
    return size, None


def worst(lags: Iterable[Lag]) -> Mapping[str, Lag]:
    """group -> the partition on which it is farthest behind in time, else in records."""
    found: dict[str, Lag] = {}
    for lag in lags:
        known = found.get(lag.group)
        if known is None or (lag.time_ms or 0, lag.records) > (known.time_ms or 0, known.records):
            found[lag.group] = lag
    return found

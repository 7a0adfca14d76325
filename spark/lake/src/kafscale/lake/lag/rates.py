"""How fast groups read and producers write, and whether a group is at the end before its records are gone.

A rate is a difference over a window, so rows that were left out of the history because nothing had changed do not bend
it. A group that is not catching up has no ETA; an unknown ETA is no sign of health.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from kafscale.lake.catalog import Log
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.owners import GroupPartition
from kafscale.lake.lag.samples import ask

WINDOW_MS: Final = 600_000
SPAN_MIN_MS: Final = 10_000
"""Less history than that says nothing of a rate."""
CATCHING_UP_MIN: Final = 0.01
"""Of the produce rate: the lag of a group that keeps up goes up and down by less, and means nothing."""
SOON_MS: Final = 3_600_000
SEGMENTS_WEIGHED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Records per second. `net`: by how much more is read than written; what retention takes is not caught up.

    None: there is no history.
    """

    consumed: float | None = None
    produced: float | None = None
    net: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What was committed to a log in a time, by its commit records: no history is needed for it."""

    records: int
    bytes: int


EARLIER: Final = """
select group_id, topic, partition,
    greatest(min(ts), max(since_ms)) as ts,
    coalesce(max_by(committed, ts) filter (where ts <= since_ms), min_by(committed, ts)) as committed,
    coalesce(max_by(log_end, ts) filter (where ts <= since_ms), min_by(log_end, ts)) as log_end
from samples cross join rules where committed is not null group by group_id, topic, partition
"""
"""What held at the window's begin, or at the first sample after it."""


def rates(samples: pa.Table, lags: Iterable[Lag], now_ms: int) -> Mapping[GroupPartition, Rates]:
    """Between the window's begin and `lags`, which are of now."""
    rows = ask(EARLIER, samples, {"since_ms": now_ms - WINDOW_MS})
    earlier = {(row[0], row[1], row[2]): row[3:] for row in rows}
    found = {}
    for lag in lags:
        place = (lag.group, lag.topic, lag.partition)
        ts, committed, log_end = earlier.get(place, (now_ms, 0, 0))
        if lag.committed is None or now_ms - ts < SPAN_MIN_MS:
            found[place] = Rates()
            continue
        span_s = (now_ms - ts) / 1000
        found[place] = Rates(
            consumed=max(0, lag.committed - committed) / span_s,  # a group that was set back read nothing
            produced=max(0, lag.log_end - log_end) / span_s,
            net=((lag.committed - committed) - (lag.log_end - log_end)) / span_s,
        )
    return found


def produced(log: Log, since_ms: int) -> Produced:
    """Offsets and bytes of the segments that were committed since, of those that are left."""
    new = [seg for seg in log.segments if seg.created_ms >= since_ms]
    return Produced(records=sum(seg.end - seg.base for seg in new), bytes=sum(seg.size for seg in new))


def bytes_per_record(log: Log) -> float | None:
    """Of the newest segments; None if there are none."""
    newest = log.segments[-SEGMENTS_WEIGHED:]
    offsets = sum(seg.end - seg.base for seg in newest)
    return sum(seg.size for seg in newest) / offsets if offsets else None


def eta_ms(lag: Lag, found: Rates) -> int | None:
    """Until the group has read everything at its present rate. None: never, or unknown."""
    if not lag.records:
        return 0
    if found.net is None or found.net <= CATCHING_UP_MIN * (found.produced or 0):
        return None
    return round(lag.records / found.net * 1000)


def expires_by_size_ms(lag: Lag, bytes_per_s: float | None) -> int | None:
    """Until retention by size takes the group's next record, if producers go on like that. None: not in sight."""
    if lag.room_bytes is None:
        return None
    if not lag.room_bytes:
        return 0
    return round(lag.room_bytes / bytes_per_s * 1000) if bytes_per_s else None


def soonest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def at_risk(lag: Lag, eta: int | None, expires: int | None) -> bool:
    """Whether the group has lost records, or will before it has read them. Both times in ms; see `eta_ms`."""
    if lag.lost:
        return True
    if not lag.records or expires is None:
        return False
    return expires < SOON_MS if eta is None else eta > expires

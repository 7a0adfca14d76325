"""Whether a group keeps up, by Burrow's rules (linkedin/Burrow, core/internal/evaluator/caching.go), as SQL.

No threshold: a partition is judged by its last commits and by what its log's end did meanwhile. STOP: nothing was
committed for longer than the window's commits took, and the group was not at the end recently. REWIND: offsets went
back and have not been regained. STALL: commits of one offset. WARN: offsets rise and the lag never fell. Only the
first two are said of one that had no lag at some commit of the window. LOST, AHEAD and REPLACED are not Burrow's: the
report gives them to a partition whose committed offset is no place in its log, at once and whatever the history says.
LOST: it is below the log's start. AHEAD: it is beyond the log's end. REPLACED: it is of a deleted topic with this name.
A group that has committed no more than the stable end is judged by that end: if it is read_committed, it cannot read
further, and has read all when it is there. One that has committed more is judged by the log's end.
The text keeps to what DuckDB's and Spark's SQL have in common; `ts` and `commit_ts` are milliseconds in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa
from kafscale.lake.lag.owners import GroupPartition
from kafscale.lake.lag.samples import ask


class Status(StrEnum):
    """Burrow's, what it answers when it knows nothing, and those of offsets that are no place in the log."""

    UNKNOWN = "UNKNOWN"
    OK = "OK"
    WARN = "WARN"
    ERR = "ERR"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"
    LOST = "LOST"
    AHEAD = "AHEAD"
    REPLACED = "REPLACED"


NUMBERS: Final[Mapping[Status, int]] = {status: number for number, status in enumerate(Status)}
"""As Burrow numbers them: 0 is its NOTFOUND. It has no 7, 8 and 9."""
READS_NOTHING: Final = frozenset({Status.STOP, Status.STALL, Status.REWIND})
TROUBLE: Final = frozenset({Status.ERR, Status.STOP, Status.STALL, Status.REWIND})
SEVERITY: Final = (
    Status.OK,
    Status.UNKNOWN,
    Status.WARN,
    Status.ERR,
    Status.REPLACED,
    Status.AHEAD,
    Status.LOST,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Burrow's `intervals`, and how often the log's end is looked at."""

    intervals: int = 10
    interval_ms: int = 30_000

    @property
    def window_ms(self) -> int:
        return self.intervals * self.interval_ms


@dataclass(frozen=True, slots=True)
class Judged:
    """`complete`: how much of the window has commits, 0 to 1."""

    status: Status
    complete: float


SQL: Final = """
with readable as (
    select group_id, topic, partition, ts, commit_ts, committed, log_start,
        case when committed <= stable_end then stable_end else log_end end as end_offset
    from samples where committed is not null
), placed as (
    select readable.*, greatest(0, end_offset - greatest(committed, log_start)) as lag from readable
), seen as (
    select group_id, topic, partition, commit_ts, committed, min(ts) as ts, min_by(lag, ts) as lag
    from placed group by group_id, topic, partition, commit_ts, committed
), numbered as (
    select seen.*,
        row_number() over (partition by group_id, topic, partition order by commit_ts desc, ts desc) as back
    from seen
), steps as (
    select group_id, topic, partition, commit_ts, committed, lag, back,
        lag(committed) over (partition by group_id, topic, partition order by back desc) as committed_before,
        lag(lag) over (partition by group_id, topic, partition order by back desc) as lag_before
    from numbered cross join rules where back <= intervals
), back_steps as (
    select group_id, topic, partition, max(back) as back, max_by(committed_before, back) as lost
    from steps where committed < committed_before group by group_id, topic, partition
), rewound as (
    select steps.group_id, steps.topic, steps.partition, max(committed) < max(lost) as rewound
    from steps join back_steps on steps.group_id = back_steps.group_id and steps.topic = back_steps.topic
        and steps.partition = back_steps.partition and steps.back <= back_steps.back
    group by steps.group_id, steps.topic, steps.partition
), windows as (
    select group_id, topic, partition, count(*) as commits,
        min_by(commit_ts, -back) as first_ms, max_by(commit_ts, -back) as last_ms,
        max_by(committed, -back) as committed,
        min(lag) as least_lag, min(committed) = max(committed) as stalled,
        max(case when lag < lag_before then 1 else 0 end) = 1 as fell
    from steps group by group_id, topic, partition
), ends as (
    select group_id, topic, partition, max_by(lag, ts) as lag,
        coalesce(
            max_by(end_offset, ts) filter (where ts <= now_ms - (intervals - 1) * interval_ms), min(end_offset)
        ) as least_end
    from placed cross join rules group by group_id, topic, partition
)
select windows.group_id, windows.topic, windows.partition,
    case
        when ends.lag = 0 then 'OK'
        when now_ms - last_ms > last_ms - first_ms and least_end > committed then 'STOP'
        when coalesce(rewound, false) then 'REWIND'
        when least_lag = 0 then 'OK'
        when stalled then 'STALL'
        when not fell then 'WARN'
        else 'OK'
    end as status,
    commits / cast(intervals as double) as complete
from windows cross join rules
join ends on windows.group_id = ends.group_id and windows.topic = ends.topic
    and windows.partition = ends.partition
left join rewound on windows.group_id = rewound.group_id and windows.topic = rewound.topic
    and windows.partition = rewound.partition
"""
"""Over `samples` and `rules`, a table of one row: now_ms and the fields of Rules."""


def judge(samples: pa.Table, now_ms: int, rules: Rules | None = None) -> Mapping[GroupPartition, Judged]:
    """The status of every place in the samples. Those of at least twice the window should be among them."""
    row = {"now_ms": now_ms, **asdict(rules or Rules())}
    return {
        (group, topic, partition): Judged(Status(status), complete)
        for group, topic, partition, status, complete in ask(SQL, samples, row)
    }


def worst(statuses: Iterable[Status]) -> Status:
    """A group is as its worst partition. Burrow's troubles are an error of the group."""
    found = [Status.ERR if status in TROUBLE else status for status in statuses]
    return max(found, key=SEVERITY.index, default=Status.UNKNOWN)

"""The lag report: what is known of each partition of a group, of each group and of each topic. Pure.

Without history it says what commit records and committed offsets say, and of the rest that it is not known (None, or
the status UNKNOWN). A partition that is behind is judged only once the history is as long as Burrow's window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeVar

import pyarrow as pa
from kafscale.lake.catalog import Log, by_place
from kafscale.lake.lag.commits import Commit, state_of
from kafscale.lake.lag.history import DAY_MS, HOUR_MS
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.owners import GroupPartition, Owner, owners
from kafscale.lake.lag.rates import (
    WINDOW_MS,
    Rates,
    at_risk,
    bytes_per_record,
    eta_ms,
    expires_by_size_ms,
    produced,
    rates,
    soonest,
)
from kafscale.lake.lag.samples import SAMPLES, WHOLE_EVERY_MS, sample
from kafscale.lake.lag.series import Series, series, slope_per_s
from kafscale.lake.lag.status import Judged, Rules, Status, judge, worst
from kafscale.storage.groups import GroupState
from kafscale.storage.topics import Topic

IDLE_MS: Final = HOUR_MS
TOP: Final = 5
POINTS: Final = 97
"""Of the series over a day: one each quarter of an hour."""


class Life(StrEnum):
    """ACTIVE: members, or a commit within the hour. IDLE: neither, and all is read. DEAD: neither, and it is behind."""

    ACTIVE = "active"
    IDLE = "idle"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One group on one partition. Rates are records per second."""

    group: str
    topic: str
    partition: int
    status: Status
    records: int
    bytes: int
    time_ms: int | None
    lost: int
    at_risk: bool
    expires_in_ms: int | None
    expires_by_size_ms: int | None
    eta_ms: int | None
    consume_per_s: float | None
    produce_per_s: float | None
    net_per_s: float | None
    committed: int
    log_start: int
    log_end: int
    committed_ms: int
    member: str | None
    client: str | None
    host: str | None
    complete: float

    @property
    def place(self) -> GroupPartition:
        return self.group, self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """`skew`: the largest lag over the mean. Trends: records per second that the total lag grew by."""

    group: str
    status: Status
    life: Life
    state: str | None
    members: int
    partitions: int
    records: int
    records_max: int
    bytes: int
    time_ms: int | None
    lost: int
    at_risk: int
    expires_in_ms: int | None
    skew: float | None
    trend_1h_per_s: float | None
    trend_24h_per_s: float | None
    complete: float
    unowned: tuple[str, ...]
    laggards: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """`head_room_ms`: how much shorter than now retention by time could be without the slowest group losing data."""

    topic: str
    partitions: int
    groups: int
    slowest_group: str | None
    slowest_ms: int | None
    records: int
    bytes: int
    produce_per_s: float
    produce_bytes_per_s: float
    bytes_per_day: int
    retention_ms: int | None
    retention_bytes: int | None
    head_room_ms: int | None


Row = TypeVar("Row", PartitionRow, GroupRow, TopicRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`history_ms`: how far back the samples reach that it is made with, None without any."""

    cluster: str
    at_ms: int
    history_ms: int | None = None
    partitions: tuple[PartitionRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    series: Series = Series()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a report is made of. `recent`: all samples of the last windows; `overview`: whole ones of the last day."""

    cluster: str
    at_ms: int
    logs: Sequence[Log]
    commits: Sequence[Commit]
    lags: Sequence[Lag]
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    recent: pa.Table = field(default_factory=SAMPLES.empty_table)
    overview: pa.Table = field(default_factory=SAMPLES.empty_table)
    rules: Rules = Rules()

    @property
    def topics(self) -> Mapping[str, Topic]:
        return {log.topic.name: log.topic for log in self.logs}


RECENT_MS: Final = 2 * WINDOW_MS + WHOLE_EVERY_MS
"""Reaches a whole sample before the window of rates, and twice Burrow's window."""


def make_report(facts: Facts) -> Report:
    times = [
        column["ts"].cast(pa.int64())[0].as_py() for column in (facts.recent, facts.overview) if len(column)
    ]
    history_ms = facts.at_ms - min(times) if times else None
    owned = owners(facts.groups.values(), facts.topics.values())
    live = sample(facts.logs, facts.commits, owned, facts.at_ms)
    recent, overview = (pa.concat_tables([rows, live]) for rows in (facts.recent, facts.overview))
    known = history_ms is not None and history_ms >= facts.rules.window_ms
    judged = judge(recent, facts.at_ms, facts.rules) if known else {}
    measured = rates(facts.recent, facts.lags, facts.at_ms)
    committed_ms = {(each.group, each.topic, each.partition): each.offset.commit_ms for each in facts.commits}
    logs = by_place(facts.logs)
    rows = []
    for lag in facts.lags:
        place = (lag.group, lag.topic, lag.partition)
        verdict = judged.get(place)
        if verdict is None or not lag.records:
            verdict = Judged(
                Status.UNKNOWN if lag.records else Status.OK, verdict.complete if verdict else 0.0
            )
        log = logs[lag.topic, lag.partition]
        rates_here = _with_commits(measured[place], log, facts.at_ms)
        rows.append(_partition(lag, verdict, rates_here, log, owned.get(place), committed_ms[place]))
    lines = series(overview, facts.at_ms, DAY_MS, POINTS)
    return Report(
        cluster=facts.cluster,
        at_ms=facts.at_ms,
        history_ms=history_ms,
        partitions=tuple(rows),
        groups=tuple(
            _group(name, list(some), facts, lines) for name, some in groupby(rows, lambda row: row.group)
        ),
        topics=tuple(_topics(rows, facts)),
        series=lines,
    )


def _with_commits(found: Rates, log: Log, at_ms: int) -> Rates:
    """Without history, what was produced is known all the same."""
    if found.produced is not None:
        return found
    return Rates(produced=produced(log, at_ms - WINDOW_MS).records / WINDOW_MS * 1000)


def _partition(
    lag: Lag, verdict: Judged, found: Rates, log: Log, owner: Owner | None, committed_ms: int
) -> PartitionRow:
    weight = bytes_per_record(log)
    by_size = expires_by_size_ms(lag, weight and found.produced and weight * found.produced)
    eta = eta_ms(lag, found)
    return PartitionRow(
        group=lag.group,
        topic=lag.topic,
        partition=lag.partition,
        status=verdict.status,
        records=lag.records,
        bytes=lag.bytes,
        time_ms=lag.time_ms,
        lost=lag.lost,
        at_risk=at_risk(lag, eta, soonest(lag.expires_in_ms, by_size)),
        expires_in_ms=lag.expires_in_ms,
        expires_by_size_ms=by_size,
        eta_ms=eta,
        consume_per_s=found.consumed,
        produce_per_s=found.produced,
        net_per_s=found.net,
        committed=lag.committed,
        log_start=lag.log_start,
        log_end=lag.log_end,
        committed_ms=committed_ms,
        member=owner.member if owner is not None else None,
        client=owner.client if owner is not None else None,
        host=owner.host if owner is not None else None,
        complete=verdict.complete,
    )


def _group(name: str, rows: Sequence[PartitionRow], facts: Facts, lines: Series) -> GroupRow:
    state = facts.groups.get(name)
    members = len(state.state.members) if state is not None else 0
    total, largest = sum(row.records for row in rows), max(row.records for row in rows)
    line = lines.total(row.place for row in rows)
    laggards = sorted((row for row in rows if row.records), key=_distance, reverse=True)[:TOP]
    quiet = facts.at_ms - max(row.committed_ms for row in rows) > IDLE_MS
    return GroupRow(
        group=name,
        status=worst(row.status for row in rows),
        life=Life.ACTIVE if members or not quiet else Life.DEAD if total else Life.IDLE,
        state=state_of(state) if state is not None else None,
        members=members,
        partitions=len(rows),
        records=total,
        records_max=largest,
        bytes=sum(row.bytes for row in rows),
        time_ms=max((row.time_ms for row in rows if row.time_ms is not None), default=None),
        lost=sum(row.lost for row in rows),
        at_risk=sum(row.at_risk for row in rows),
        expires_in_ms=soonest(
            *(each for row in rows for each in (row.expires_in_ms, row.expires_by_size_ms))
        ),
        skew=largest * len(rows) / total if total else None,
        trend_1h_per_s=slope_per_s(line, lines.step_ms, HOUR_MS),
        trend_24h_per_s=slope_per_s(line, lines.step_ms, DAY_MS),
        complete=sum(row.complete >= 1 for row in rows) / len(rows),
        unowned=tuple(f"{row.topic}/{row.partition}" for row in rows if members and row.member is None),
        laggards=tuple(f"{row.topic}/{row.partition}" for row in laggards),
    )


def farthest(rows: Sequence[Row], top: int | None) -> Sequence[Row]:
    """The `top` rows that are farthest behind, worst first; all of them in their order without a number."""
    if top is None:
        return rows
    return sorted(rows, key=_distance, reverse=True)[:top]


def _distance(row: PartitionRow | GroupRow | TopicRow) -> tuple[int, int]:
    """By time first: a record of a busy topic weighs less than one of a quiet topic."""
    match row:
        case TopicRow():
            return row.slowest_ms or 0, row.groups
        case PartitionRow() | GroupRow():
            return row.time_ms or 0, row.records


def _topics(rows: Sequence[PartitionRow], facts: Facts) -> Iterable[TopicRow]:
    readers: dict[str, list[PartitionRow]] = {}
    for row in rows:
        readers.setdefault(row.topic, []).append(row)
    for name, some in groupby(facts.logs, lambda log: log.topic.name):
        logs = list(some)
        topic, mine = logs[0].topic, readers.get(name, [])
        slowest = max(mine, key=_distance, default=None)
        slowest_ms = slowest.time_ms if slowest is not None else None
        hour = [produced(log, facts.at_ms - HOUR_MS) for log in logs]
        retention_ms = topic.retention_ms if topic.deletes_records and topic.retention_ms >= 0 else None
        yield TopicRow(
            topic=name,
            partitions=len(logs),
            groups=len({row.group for row in mine}),
            slowest_group=slowest.group if slowest is not None and slowest_ms is not None else None,
            slowest_ms=slowest_ms,
            records=sum(log.end - log.start for log in logs),
            bytes=sum(seg.size for log in logs for seg in log.segments),
            produce_per_s=sum(each.records for each in hour) / HOUR_MS * 1000,
            produce_bytes_per_s=sum(each.bytes for each in hour) / HOUR_MS * 1000,
            bytes_per_day=sum(produced(log, facts.at_ms - DAY_MS).bytes for log in logs),
            retention_ms=retention_ms,
            retention_bytes=topic.retention_bytes if topic.retention_bytes >= 0 else None,
            head_room_ms=retention_ms - (slowest_ms or 0) if retention_ms is not None else None,
        )

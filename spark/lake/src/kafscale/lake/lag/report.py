"""The lag report: what is known of each partition of a group, of each group and of each topic. Pure.

Without history it says what commit records and committed offsets say, and of the rest that it is not known (None, or
the status UNKNOWN). A partition that is behind is judged only once the history is as long as Burrow's window. That a
committed offset is no place in its log is known without history, so it is said at once: of records that are lost, of an
offset beyond the log's end, and of one that belongs to an earlier topic with the same name.

A partition without a committed offset has its unread records and no judgement: nobody knows where the group begins. So
`records`, `bytes` and `partitions` of a group count it, and all that needs a position does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.catalog import Log, by_place
from kafscale.lake.lag.history import DAY_MS, HOUR_MS
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.owners import GroupPartition, Owner, is_managed, owners
from kafscale.lake.lag.positions import Position, state_of
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
from kafscale.lake.lag.status import READS_NOTHING, Judged, Rules, Status, judge, worst
from kafscale.lake.tables import calendar_ms
from kafscale.storage.groups import GroupState
from kafscale.storage.topics import Topic

IDLE_MS: Final = HOUR_MS
TOP: Final = 5
STEPS_MAX: Final = 288
"""Of the series: one each five minutes of a day."""
STEP_MIN_MS: Final = 1_000


class Life(StrEnum):
    """ACTIVE: members, or a commit within the hour. IDLE: neither, and all is read. DEAD: neither, and it is behind."""

    ACTIVE = "active"
    IDLE = "idle"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One group on one partition. Rates are records per second. `committed` None: the group committed nothing there,
    so all that is stored counts as unread. `stable_records`: those of `records` below `stable_end`, the last stable
    offset, which is all that a read_committed group can read now."""

    group: str
    topic: str
    partition: int
    status: Status
    records: int
    stable_records: int
    bytes: int
    time_ms: int | None
    lost: int
    ahead: int
    at_risk: bool
    expires_in_ms: int | None
    expires_by_size_ms: int | None
    eta_ms: int | None
    consume_per_s: float | None
    produce_per_s: float | None
    net_per_s: float | None
    committed: int | None
    log_start: int
    log_end: int
    stable_end: int
    committed_ms: int | None
    member: str | None
    client: str | None
    host: str | None
    complete: float

    @property
    def place(self) -> GroupPartition:
        return self.group, self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """`skew`: the largest lag over the mean. Trends: records per second that the total lag grew by. `managed`: whether
    coordinators assign its partitions; `unowned`: those that no member has then. `uncommitted`: partitions without a
    committed offset; the three fields after it say what a group that starts at the earliest record would read, and
    when it would lose the first of it."""

    group: str
    status: Status
    life: Life
    state: str | None
    members: int
    managed: bool
    partitions: int
    records: int
    stable_records: int
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
    uncommitted: tuple[str, ...]
    uncommitted_records: int
    uncommitted_bytes: int
    uncommitted_expires_in_ms: int | None
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
    positions: Sequence[Position]
    lags: Sequence[Lag]
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    recent: pa.Table = field(default_factory=SAMPLES.empty_table)
    overview: pa.Table = field(default_factory=SAMPLES.empty_table)
    rules: Rules = Rules()

    @property
    def topics(self) -> Mapping[str, Topic]:
        return {log.topic.name: log.topic for log in self.logs}


def cut(facts: Facts, groups: Collection[str], topics: Collection[str]) -> Facts:
    """What somebody may know who sees only these groups and topics. Its report has no other name, and no number of
    another: the report of a group is that of its partitions in these topics."""

    def rows(samples: pa.Table) -> pa.Table:
        wanted = pc.is_in(samples["group_id"], value_set=pa.array(sorted(groups), pa.string()))
        seen = pc.is_in(samples["topic"], value_set=pa.array(sorted(topics), pa.string()))
        return samples.filter(pc.and_(wanted, seen))

    there = {each.group for each in facts.positions} | set(facts.groups)
    if there <= set(groups) and facts.topics.keys() <= set(topics):
        return facts
    return replace(
        facts,
        logs=[log for log in facts.logs if log.topic.name in topics],
        positions=[each for each in facts.positions if each.group in groups and each.topic in topics],
        lags=[each for each in facts.lags if each.group in groups and each.topic in topics],
        groups={name: state for name, state in facts.groups.items() if name in groups},
        recent=rows(facts.recent),
        overview=rows(facts.overview),
    )


RECENT_MS: Final = 2 * WINDOW_MS + WHOLE_EVERY_MS
"""Reaches a whole sample before the window of rates, and twice Burrow's window."""


def make_report(facts: Facts) -> Report:
    times = [
        column["ts"].cast(pa.int64())[0].as_py() for column in (facts.recent, facts.overview) if len(column)
    ]
    history_ms = facts.at_ms - min(times) if times else None
    owned = owners(facts.groups.values(), facts.topics.values())
    live = sample(facts.logs, facts.positions, owned, facts.at_ms)
    recent = pa.concat_tables([facts.recent, live])
    known = history_ms is not None and history_ms >= facts.rules.window_ms
    judged = judge(recent, facts.at_ms, facts.rules) if known else {}
    measured = rates(facts.recent, facts.lags, facts.at_ms)
    committed_ms = {
        (each.group, each.topic, each.partition): calendar_ms(each.offset.commit_ms)
        for each in facts.positions
        if each.offset is not None
    }
    logs = by_place(facts.logs)
    replaced = _replaced(facts)
    rows = []
    for lag in facts.lags:
        place = (lag.group, lag.topic, lag.partition)
        log = logs[lag.topic, lag.partition]
        rates_here = _with_commits(measured[place], log, facts.at_ms)
        verdict = _verdict(lag, judged.get(place), is_replaced=place in replaced)
        rows.append(_partition(lag, verdict, rates_here, log, owned.get(place), committed_ms.get(place)))
    behind = {(lag.group, lag.topic, lag.partition) for lag in facts.lags if lag.readable}
    lines = _lines(facts.overview, recent, facts.at_ms, history_ms or 0)
    return Report(
        cluster=facts.cluster,
        at_ms=facts.at_ms,
        history_ms=history_ms,
        partitions=tuple(rows),
        groups=tuple(
            _group(name, list(some), facts, behind, lines)
            for name, some in groupby(rows, lambda row: row.group)
        ),
        topics=tuple(_topics(rows, facts)),
        series=lines,
    )


def _replaced(facts: Facts) -> frozenset[GroupPartition]:
    """Where the committed offset has the leader epoch of an earlier topic with the same name, so of another log."""
    topics = facts.topics
    return frozenset(
        (each.group, each.topic, each.partition)
        for each in facts.positions
        if each.offset is not None
        and (topic := topics.get(each.topic)) is not None
        and topic.epoch_floor
        and 0 <= each.offset.leader_epoch < topic.first_epoch
    )


def _verdict(lag: Lag, judged: Judged | None, *, is_replaced: bool) -> Judged:
    complete = judged.complete if judged is not None else 0.0
    if is_replaced:
        return Judged(Status.REPLACED, complete)
    if lag.ahead:
        return Judged(Status.AHEAD, complete)
    if lag.lost:
        return Judged(Status.LOST, complete)
    if not (lag.records if lag.committed is None else lag.readable):
        return Judged(Status.OK, complete)
    return judged if judged is not None else Judged(Status.UNKNOWN, complete)


def _lines(overview: pa.Table, recent: pa.Table, at_ms: int, history_ms: int) -> Series:
    """As long as the history is, a day at most; in the last minutes as fine as the samples are."""
    span_ms = min(DAY_MS, history_ms)
    step_ms = max(STEP_MIN_MS, span_ms // STEPS_MAX)
    older = overview.filter(pc.field("ts") < recent["ts"][0]) if len(recent) else overview
    return series(pa.concat_tables([older, recent]), at_ms, span_ms, span_ms // step_ms + 1)


def _with_commits(found: Rates, log: Log, at_ms: int) -> Rates:
    """Without history, what was produced is known all the same."""
    if found.produced is not None:
        return found
    return Rates(produced=produced(log, at_ms - WINDOW_MS).records / WINDOW_MS * 1000)


def _partition(
    lag: Lag, verdict: Judged, found: Rates, log: Log, owner: Owner | None, committed_ms: int | None
) -> PartitionRow:
    weight = bytes_per_record(log)
    by_size = expires_by_size_ms(lag, weight and found.produced and weight * found.produced)
    # A reset moves offsets without reading: a group that does not read now comes to no end.
    eta = None if lag.records and verdict.status in READS_NOTHING else eta_ms(lag, found)
    return PartitionRow(
        group=lag.group,
        topic=lag.topic,
        partition=lag.partition,
        status=verdict.status,
        records=lag.records,
        stable_records=lag.stable_records,
        bytes=lag.bytes,
        time_ms=lag.time_ms,
        lost=lag.lost,
        ahead=lag.ahead,
        at_risk=lag.committed is not None and at_risk(lag, eta, soonest(lag.expires_in_ms, by_size)),
        expires_in_ms=lag.expires_in_ms,
        expires_by_size_ms=by_size,
        eta_ms=eta,
        consume_per_s=found.consumed,
        produce_per_s=found.produced,
        net_per_s=found.net,
        committed=lag.committed,
        log_start=lag.log_start,
        log_end=lag.log_end,
        stable_end=lag.stable_end,
        committed_ms=committed_ms,
        member=owner.member if owner is not None else None,
        client=owner.client if owner is not None else None,
        host=owner.host if owner is not None else None,
        complete=verdict.complete,
    )


def _group(
    name: str,
    rows: Sequence[PartitionRow],
    facts: Facts,
    behind: Collection[GroupPartition],
    lines: Series,
) -> GroupRow:
    """`behind`: where a group has not read all that it can read."""
    state = facts.groups.get(name)
    members = len(state.state.members) if state is not None else 0
    placed = [row for row in rows if row.committed is not None]
    unplaced = [row for row in rows if row.committed is None]
    total, largest = sum(row.records for row in placed), max((row.records for row in placed), default=0)
    line = lines.total(row.place for row in rows)
    laggards = sorted((row for row in placed if row.records), key=_distance, reverse=True)[:TOP]
    newest_ms = max((row.committed_ms for row in rows if row.committed_ms is not None), default=0)
    quiet = facts.at_ms - newest_ms > IDLE_MS
    managed = is_managed(state)
    unowned = [row for row in rows if row.member is None] if managed else []
    return GroupRow(
        group=name,
        status=worst(row.status for row in placed or rows),
        life=Life.ACTIVE
        if members or not quiet
        else Life.DEAD
        if any(row.place in behind for row in placed)
        else Life.IDLE,
        state=state_of(state) if state is not None else None,
        members=members,
        managed=managed,
        partitions=len(rows),
        records=sum(row.records for row in rows),
        stable_records=sum(row.stable_records for row in rows),
        records_max=largest,
        bytes=sum(row.bytes for row in rows),
        time_ms=max((row.time_ms for row in placed if row.time_ms is not None), default=None),
        lost=sum(row.lost for row in rows),
        at_risk=sum(row.at_risk for row in rows),
        expires_in_ms=_expires(placed),
        skew=largest * len(placed) / total if total else None,
        trend_1h_per_s=slope_per_s(line, lines.step_ms, HOUR_MS),
        trend_24h_per_s=slope_per_s(line, lines.step_ms, DAY_MS),
        complete=sum(row.complete >= 1 for row in placed) / max(1, len(placed)),
        unowned=_names(unowned),
        uncommitted=_names(unplaced),
        uncommitted_records=sum(row.records for row in unplaced),
        uncommitted_bytes=sum(row.bytes for row in unplaced),
        uncommitted_expires_in_ms=_expires(unplaced),
        laggards=_names(laggards),
    )


def _expires(rows: Iterable[PartitionRow]) -> int | None:
    return soonest(*(each for row in rows for each in (row.expires_in_ms, row.expires_by_size_ms)))


def _names(rows: Iterable[PartitionRow]) -> tuple[str, ...]:
    return tuple(f"{row.topic}/{row.partition}" for row in rows)


def farthest(rows: Sequence[Row], top: int | None) -> Sequence[Row]:
    """The `top` rows that are farthest behind, worst first; all of them in their order without a number."""
    if top is None:
        return rows
    return sorted(rows, key=_distance, reverse=True)[:top]


def _distance(row: PartitionRow | GroupRow | TopicRow) -> tuple[int, int]:
    """By time first: a record of a busy topic weighs less than one of a quiet topic. A partition without a committed
    offset comes last, because nobody knows how far behind it is."""
    match row:
        case TopicRow():
            return row.slowest_ms or 0, row.groups
        case PartitionRow(committed=None):
            return -1, row.records
        case PartitionRow() | GroupRow():
            return row.time_ms or 0, row.records


def _topics(rows: Sequence[PartitionRow], facts: Facts) -> Iterable[TopicRow]:
    readers: dict[str, list[PartitionRow]] = {}
    for row in rows:
        readers.setdefault(row.topic, []).append(row)
    for name, some in groupby(facts.logs, lambda log: log.topic.name):
        logs = list(some)
        topic, mine = logs[0].topic, readers.get(name, [])
        slowest = max((row for row in mine if row.committed is not None), key=_distance, default=None)
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

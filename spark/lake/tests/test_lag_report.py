"""The report says of partitions, groups and topics what their facts say, and nothing that nobody can know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from kafscale.lake.catalog import Log
from kafscale.lake.group_tables import partitions_table
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.positions import Commit, Position
from kafscale.lake.lag.prometheus import exposition, gauges
from kafscale.lake.lag.rates import Rates, at_risk, eta_ms, expires_by_size_ms, rates
from kafscale.lake.lag.report import (
    DAY_MS,
    HOUR_MS,
    Facts,
    GroupRow,
    Life,
    Report,
    TopicRow,
    _partition,
    farthest,
    make_report,
)
from kafscale.lake.lag.samples import Kind, Memory, sample, thinned
from kafscale.lake.lag.series import UNKNOWN, series, slope_per_s
from kafscale.lake.lag.status import Judged, Status
from kafscale.log.heads import Seg
from kafscale.storage.groups import ClassicGroup, ClassicMember, CommittedOffset, GroupState
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from prometheus_client.parser import text_string_to_metric_families

NOW = 1_700_000_100_000
STEP = 30_000
NAMES = (
    *(
        "offset",
        "lag",
        "stable_lag",
        "lost",
        "ahead",
        "lag_seconds",
        "eta_seconds",
        "expires_seconds",
        "status",
    ),
    *("max_lag", "max_lag_seconds", "sum_lag", "topic_sum_lag", "uncommitted_lag"),
)
TOPIC = Topic(name="orders", topic_id=TopicId(b"1" * 16), partitions=2, configs={"retention.ms": str(DAY_MS)})


def seg(base: int, end: int, created_ms: int, size: int = 1_000) -> Seg:
    return Seg(
        base=base,
        last_delta=end - base - 1,
        size=size,
        etag=f"{base}",
        crc32c=0,
        index_size=0,
        index_etag="",
        epoch=1,
        min_ts=created_ms,
        max_ts=created_ms,
        records=end - base,
        batches=1,
        created_ms=created_ms,
    )


def log(end: int, partition: int = 0, topic: Topic = TOPIC, segments: Sequence[Seg] = ()) -> Log:
    return Log(
        topic=topic, partition=partition, end=end, segments=tuple(segments) or (seg(0, end, NOW - HOUR_MS),)
    )


def commit(offset: int, partition: int = 0, at_ms: int = NOW - 1_000, group: str = "g") -> Commit:
    committed = CommittedOffset(offset=offset, commit_ms=at_ms)
    return Commit(group=group, topic="orders", partition=partition, offset=committed)


def lag_of(each: Commit, end: int, time_ms: int | None = None, expires: int | None = None) -> Lag:
    offset = each.offset.offset
    records = max(0, end - offset)
    return Lag(
        group=each.group,
        topic=each.topic,
        partition=each.partition,
        committed=offset,
        log_start=0,
        log_end=end,
        records=records,
        stable_end=end,
        stable_records=records,
        lost=0,
        bytes=10 * records,
        time_ms=time_ms if records else None,
        expires_in_ms=expires if records else None,
    )


def facts(commits: Sequence[Commit], ends: Sequence[int], **how: object) -> Facts:
    logs = [log(end, partition) for partition, end in enumerate(ends)]
    lags = [lag_of(each, ends[each.partition], time_ms=5_000, expires=10 * HOUR_MS) for each in commits]
    return replace(
        Facts(cluster="test", at_ms=NOW, logs=logs, positions=commits, lags=lags),
        **how,  # type: ignore[arg-type]
    )


def sampled(moment: Callable[[int], tuple[int, int]], steps: int = 41, whole: bool = False) -> pa.Table:
    """Of a partition: `moment(seconds before now)` is its committed offset and its log's end."""
    memory, tables = Memory(), []
    for step in range(steps):
        ts = NOW - (steps - 1 - step) * STEP
        committed, end = moment((NOW - ts) // 1000)
        found, memory = thinned(sample([log(end)], [commit(committed, at_ms=ts - 1_000)], {}, ts), memory, ts)
        if not whole or found.kind is Kind.WHOLE:
            tables.append(found.rows)
    return pa.concat_tables(tables)


def member(name: str) -> ClassicMember:
    return ClassicMember(id=name, session_timeout_ms=1, rebalance_timeout_ms=1)


def members_of(count: int) -> tuple[ClassicMember, ...]:
    return tuple(member(f"{number}") for number in range(count))


def only(report: Report) -> GroupRow:
    (group,) = report.groups
    return group


def test_rates_are_differences_and_the_eta_follows_from_them() -> None:
    """It reads 30 a second of 10 that are written: behind by 1,000, it needs 50 seconds."""
    history = sampled(lambda ago_s: (99_000 - 30 * ago_s, 100_000 - 10 * ago_s))
    made = make_report(facts([commit(99_000)], [100_000], recent=history))
    (row,) = made.partitions
    assert (row.consume_per_s, row.produce_per_s, row.net_per_s) == (30, 10, 20)
    assert (row.eta_ms, row.at_risk, row.status) == (50_000, False, Status.OK)


def test_a_row_that_was_left_out_because_nothing_changed_does_not_bend_a_rate() -> None:
    history = sampled(lambda ago_s: (5_000, 9_000 if ago_s > 45 else 9_600))
    found = rates(history, [lag_of(commit(5_000), 9_600)], NOW)["g", "orders", 0]
    assert (found.consumed, found.produced, found.net) == (0, 1, -1)


def test_what_retention_takes_is_not_caught_up() -> None:
    samples = sampled(lambda _: (100, 1_000))
    lag = replace(lag_of(commit(100), 1_000), log_start=500, records=500, lost=400)
    found = rates(samples, [lag], NOW)["g", "orders", 0]
    assert found == Rates(consumed=0.0, produced=0.0, net=0.0)
    assert eta_ms(lag, found) is None


def test_without_history_rates_and_status_are_not_known_and_what_was_written_is() -> None:
    segments = [seg(0, 400, NOW - HOUR_MS), seg(400, 1_000, NOW - 60_000)]
    logs = [log(1_000, segments=segments)]
    one = commit(300)
    made = make_report(replace(facts([one], [1_000]), logs=logs))
    (row,) = made.partitions
    assert made.history_ms is None
    assert (row.status, row.consume_per_s, row.net_per_s, row.eta_ms) == (Status.UNKNOWN, None, None, None)
    assert row.produce_per_s == 1
    assert only(made).status is Status.UNKNOWN


def test_who_has_read_all_is_well_also_without_history() -> None:
    made = make_report(facts([commit(1_000)], [1_000]))
    assert (made.partitions[0].status, made.partitions[0].eta_ms) == (Status.OK, 0)


@pytest.mark.parametrize("status", Status)
def test_a_group_that_reads_nothing_has_no_eta_although_a_reset_moved_its_offset(status: Status) -> None:
    given = facts([commit(300)], [1_000])
    moved = Rates(consumed=30, produced=0, net=30)
    row = _partition(given.lags[0], Judged(status, True), moved, log(1_000), None, None)
    assert (row.eta_ms is None) == (status in {Status.STOP, Status.STALL, Status.REWIND})


def test_a_commit_that_no_sample_saw_yet_counts() -> None:
    """The sampler died while the group stood; by now it has committed again, so it has not stopped."""
    history = sampled(lambda ago_s: (min(5_000, 5_300 - ago_s), 20_000 - ago_s)).slice(0, 20)
    made = make_report(facts([commit(5_000)], [20_000], recent=history))
    assert made.partitions[0].status is not Status.STOP


def test_a_group_is_summed_up() -> None:
    commits = [commit(100, 0, at_ms=NOW - 2 * HOUR_MS), commit(900, 1, at_ms=NOW - 3 * HOUR_MS)]
    state = GroupState(group="g", state=ClassicGroup(protocol_type="consumer", members=(member("a"),)))
    group = only(make_report(facts(commits, [1_000, 1_000], groups={"g": state})))
    assert (group.records, group.records_max, group.partitions, group.members) == (1_000, 900, 2, 1)
    assert group.skew == 1.8
    assert group.laggards == ("orders/0", "orders/1")
    assert group.unowned == ("orders/0", "orders/1"), "it has a member, which was given neither"
    assert group.life is Life.ACTIVE


@pytest.mark.parametrize(
    ("offset", "ago_ms", "members", "life"),
    [
        (1_000, HOUR_MS + 1, 0, Life.IDLE),
        (999, HOUR_MS + 1, 0, Life.DEAD),
        (999, HOUR_MS - 1, 0, Life.ACTIVE),
        (999, HOUR_MS + 1, 1, Life.ACTIVE),
    ],
)
def test_who_neither_commits_nor_has_members_is_idle_or_dead(
    offset: int, ago_ms: int, members: int, life: Life
) -> None:
    state = GroupState(group="g", state=ClassicGroup(protocol_type="consumer", members=members_of(members)))
    one = commit(offset, at_ms=NOW - ago_ms)
    group = only(make_report(facts([one], [1_000], groups={"g": state})))
    assert group.life is life
    assert group.unowned == ("orders/0",), "nobody reads it, whether others are members or none is"


def test_a_group_that_assigns_partitions_to_itself_has_no_partition_without_a_member() -> None:
    """Nobody knows who reads them: coordinators assign nothing."""
    alone = GroupState(group="g", state=ClassicGroup())
    for groups in ({}, {"g": alone}):
        group = only(make_report(facts([commit(5)], [1_000], groups=groups)))
        assert (group.managed, group.unowned) == (False, ())


@pytest.mark.parametrize(
    ("offset", "left", "status", "life"),
    [
        (600, 0, Status.OK, Life.IDLE),
        (599, 1, Status.STOP, Life.DEAD),
        (601, 0, Status.STOP, Life.DEAD),
    ],
)
def test_a_group_at_the_last_stable_offset_has_read_all_that_it_can(
    offset: int, left: int, status: Status, life: Life
) -> None:
    """A transaction is open from 600 on. What is behind it counts as unread, and expires. A group that has committed
    more is not read_committed, and has stopped."""
    at_ms = NOW - 2 * HOUR_MS
    looks = [
        sample([replace(log(1_000), lso=600)], [commit(offset, at_ms=at_ms)], {}, NOW - ago)
        for ago in range(41 * STEP, 0, -STEP)
    ]
    given = facts([commit(offset, at_ms=at_ms)], [1_000], recent=pa.concat_tables(looks))
    lag = replace(given.lags[0], stable_end=600, stable_records=left, expires_in_ms=60_000)
    made = make_report(replace(given, logs=[replace(log(1_000), lso=600)], lags=[lag]))
    (row,) = made.partitions
    assert (row.records, row.stable_records, row.stable_end) == (1_000 - offset, left, 600)
    assert (row.status, row.at_risk, row.expires_in_ms) == (status, True, 60_000)
    assert (only(made).life, only(made).records, only(made).stable_records) == (life, 1_000 - offset, left)
    found = {each.name: each.values for each in gauges(made, [replace(log(1_000), lso=600)])}
    assert [value for _, value in found["kafka_consumergroup_group_stable_lag"]] == [left]
    assert [value for _, value in found["kafka_partition_last_stable_offset"]] == [600]


def test_a_group_in_front_of_markers_alone_has_read_all_that_it_can() -> None:
    """Many clients commit the offset of the marker behind the last record that they have read."""
    given = facts([commit(999)], [1_000], recent=sampled(lambda _: (999, 1_000)))
    made = make_report(given)
    assert made.partitions[0].status is Status.STALL
    made = make_report(replace(given, lags=[replace(given.lags[0], is_empty=True)]))
    assert (made.partitions[0].records, made.partitions[0].status) == (1, Status.OK)


# -- partitions without a committed offset, and records that are lost -----------------------------------------------


def unplaced(partition: int) -> Position:
    return Position(group="g", topic="orders", partition=partition)


def lag_of_all(partition: int, end: int) -> Lag:
    lag = lag_of(commit(0, partition), end, time_ms=9 * HOUR_MS, expires=60_000)
    return replace(lag, committed=None)


def test_a_partition_without_a_commit_is_counted_and_not_judged() -> None:
    history = sampled(lambda ago_s: (99_000 - 30 * ago_s, 100_000 - 10 * ago_s))
    given = facts([commit(99_000)], [100_000, 400], recent=history)
    lags = [*given.lags, lag_of_all(1, 400)]
    made = make_report(replace(given, lags=lags, positions=[*given.positions, unplaced(1)]))
    row, group = made.partitions[1], only(made)
    assert (row.committed, row.committed_ms, row.records, row.lost) == (None, None, 400, 0)
    assert (row.status, row.at_risk, row.eta_ms, row.consume_per_s) == (Status.UNKNOWN, False, None, None)
    assert (group.partitions, group.records, group.uncommitted) == (2, 1_400, ("orders/1",))
    assert (group.uncommitted_records, group.uncommitted_bytes) == (400, 4_000)
    assert group.uncommitted_expires_in_ms == 60_000
    assert (group.status, group.records_max, group.skew, group.at_risk) == (Status.OK, 1_000, 1.0, 0)
    assert (group.time_ms, group.expires_in_ms) == (5_000, 10 * HOUR_MS), (
        "of what the group has begun to read"
    )
    assert group.laggards == ("orders/0",)
    (topic,) = made.topics
    assert (topic.slowest_ms, topic.groups) == (5_000, 1)
    assert [each.partition for each in farthest(made.partitions, 2)] == [0, 1]


def test_a_group_that_has_committed_nothing_at_all_is_in_the_report() -> None:
    state = GroupState(group="g", state=ClassicGroup(protocol_type="consumer", members=members_of(1)))
    made = make_report(
        replace(facts([], [400], groups={"g": state}), positions=[unplaced(0)], lags=[lag_of_all(0, 400)])
    )
    group = only(made)
    assert (group.status, group.life, group.records, group.skew) == (Status.UNKNOWN, Life.ACTIVE, 400, None)
    assert (group.time_ms, group.unowned, group.complete) == (None, ("orders/0",), 0)


@pytest.mark.parametrize("left", [0, 500])
@pytest.mark.parametrize("history", [None, 41])
def test_a_group_that_has_lost_records_says_so_at_once(history: int | None, left: int) -> None:
    """Without history, and whatever history says."""
    given = facts([commit(1_000 - left, 0), commit(1_000, 1)], [1_000, 1_000])
    lost = replace(given.lags[0], lost=400, log_start=1_000 - left)
    if history is not None:
        given = replace(given, recent=sampled(lambda _: (100, 1_000), history))
    made = make_report(replace(given, lags=[lost, given.lags[1]]))
    assert [row.status for row in made.partitions] == [Status.LOST, Status.OK]
    assert (only(made).status, only(made).lost, only(made).at_risk) == (Status.LOST, 400, 1)


@pytest.mark.parametrize("history", [None, 41])
def test_a_group_that_has_committed_beyond_the_end_says_so_at_once(history: int | None) -> None:
    """It has no lag, but its next records are not those that it has not read."""
    given = facts([commit(500, 0), commit(1_000, 1)], [10, 1_000])
    if history is not None:
        given = replace(given, recent=sampled(lambda _: (500, 10), history))
    made = make_report(replace(given, lags=[replace(given.lags[0], ahead=490), given.lags[1]]))
    assert [(row.status, row.records, row.ahead) for row in made.partitions] == [
        (Status.AHEAD, 0, 490),
        (Status.OK, 0, 0),
    ]
    assert only(made).status is Status.AHEAD
    families = text_string_to_metric_families(exposition(gauges(made, [])))
    found = {family.name.removeprefix("kafka_consumergroup_group_"): family.samples for family in families}
    assert [each.value for each in found["status"]] == [8, 1]
    assert [each.value for each in found["ahead"]] == [490, 0]


@pytest.mark.parametrize(
    ("floor", "epoch", "status"),
    [
        (4, 4, Status.REPLACED),
        (4, 0, Status.REPLACED),
        (4, 5, Status.OK),
        (4, -1, Status.OK),
        (0, 0, Status.OK),
        (0, 1, Status.OK),
    ],
)
def test_an_offset_of_an_earlier_topic_with_the_name_is_none_of_this_one(
    floor: int, epoch: int, status: Status
) -> None:
    given = facts([commit(1_000)], [1_000])
    (position,) = given.positions
    assert position.offset is not None
    old = replace(position, offset=replace(position.offset, leader_epoch=epoch))
    made = make_report(
        replace(given, positions=[old], logs=[log(1_000, topic=replace(TOPIC, epoch_floor=floor))])
    )
    assert made.partitions[0].status is status


def test_the_time_left_until_the_next_loss_is_there_beside_what_is_lost() -> None:
    given = facts([commit(500)], [1_000])
    made = make_report(replace(given, lags=[replace(given.lags[0], lost=400)]))
    assert (only(made).expires_in_ms, made.partitions[0].expires_in_ms) == (10 * HOUR_MS, 10 * HOUR_MS)


def test_a_topic_says_who_is_slowest_and_how_short_retention_could_be() -> None:
    commits = [commit(100, group="slow"), commit(990, group="fast"), commit(1_000, group="done")]
    lags = [lag_of(one, 1_000, time_ms=ms) for one, ms in zip(commits, (7_000, 60, 0), strict=True)]
    segments = [
        seg(0, 100, NOW - DAY_MS - 1, 9_000),
        seg(100, 640, NOW - 2 * HOUR_MS, 500),
        seg(640, 1_000, NOW - 1_000, 720),
    ]
    logs = [log(1_000, segments=segments)]
    made = make_report(replace(facts(commits, [1_000]), lags=lags, logs=logs))
    (topic,) = made.topics
    assert (topic.groups, topic.slowest_group, topic.slowest_ms) == (3, "slow", 7_000)
    assert (topic.bytes_per_day, topic.produce_per_s, topic.produce_bytes_per_s) == (1_220, 0.1, 0.2)
    assert topic.head_room_ms == DAY_MS - 7_000


def test_a_topic_that_nobody_reads_is_reported_too() -> None:
    (topic,) = make_report(facts([], [10])).topics
    assert topic == TopicRow(
        topic="orders",
        partitions=1,
        groups=0,
        slowest_group=None,
        slowest_ms=None,
        records=10,
        bytes=1_000,
        produce_per_s=10 / 3_600,
        produce_bytes_per_s=1_000 / 3_600,
        bytes_per_day=1_000,
        retention_ms=DAY_MS,
        retention_bytes=None,
        head_room_ms=DAY_MS,
    )


def test_an_empty_cluster_has_an_empty_report() -> None:
    made = make_report(facts([], []))
    assert (made.partitions, made.groups, made.topics) == ((), (), ())


# -- risk: no value may be left undefined --------------------------------------------------------------------------

BEHIND = lag_of(commit(0), 100)
LOST = replace(BEHIND, lost=1)
DONE = lag_of(commit(100), 100)


@pytest.mark.parametrize(
    ("lag", "eta", "expires", "risk"),
    [
        (LOST, 0, None, True),
        (DONE, 0, 5, False),
        (BEHIND, None, None, False),
        (BEHIND, 10, None, False),
        (BEHIND, None, HOUR_MS - 1, True),
        (BEHIND, None, HOUR_MS, False),
        (BEHIND, 10, 10, False),
        (BEHIND, 11, 10, True),
    ],
)
def test_who_will_lose_records_is_at_risk(lag: Lag, eta: int | None, expires: int | None, risk: bool) -> None:
    assert at_risk(lag, eta, expires) is risk


@pytest.mark.parametrize(
    ("net", "eta"), [(None, None), (0.0, None), (-3.0, None), (1.0, None), (4.0, 25_000)]
)
def test_who_is_not_catching_up_has_no_eta(net: float | None, eta: int | None) -> None:
    """Of a hundred that are written each second, one less to read is noise."""
    assert eta_ms(BEHIND, Rates(consumed=100, produced=100, net=net)) == eta


@pytest.mark.parametrize(
    ("room", "rate", "expires"),
    [(None, 5.0, None), (0, None, 0), (10, None, None), (10, 0.0, None), (10, 5.0, 2_000)],
)
def test_retention_by_size_comes_as_fast_as_producers_write(
    room: int | None, rate: float | None, expires: int | None
) -> None:
    assert expires_by_size_ms(replace(BEHIND, room_bytes=room), rate) == expires


# -- series --------------------------------------------------------------------------------------------------------


def test_a_line_keeps_what_was_known_last_and_knows_nothing_before_the_first_sample() -> None:
    history = sampled(lambda ago_s: (0, 700 if ago_s > 600 else 900), steps=31)
    line = series(history, NOW, 30 * 60_000, 7).lines["g", "orders", 0]
    assert line.tolist() == [UNKNOWN, UNKNOWN, UNKNOWN, 700, 900, 900, 900]


@pytest.mark.parametrize(("steps", "points"), [(2, 31), (11, 289), (41, 289)])
def test_the_lines_are_as_long_as_the_history(steps: int, points: int) -> None:
    """A line of two samples is half a minute wide, with a point for each second."""
    span_ms = (steps - 1) * STEP
    made = make_report(facts([commit(0)], [1_000], recent=sampled(lambda _: (0, 900), steps)))
    lines = made.series
    assert lines.points == points
    assert 0 <= lines.start_ms - (NOW - span_ms) < lines.step_ms
    line = lines.lines["g", "orders", 0].tolist()
    assert (line[0], line[-2], line[-1]) == (900, 900, 1_000)


def test_the_lines_of_a_long_history_are_a_day_long() -> None:
    whole = sampled(lambda _: (0, 900), steps=2_941, whole=True)
    lines = make_report(facts([commit(0)], [900], overview=whole)).series
    assert (lines.points, lines.step_ms, lines.start_ms) == (289, 300_000, NOW - DAY_MS)


def test_without_history_a_line_is_one_point() -> None:
    lines = make_report(facts([commit(0)], [900])).series
    assert (lines.points, lines.lines["g", "orders", 0].tolist()) == (1, [900])


def test_the_last_minutes_of_a_line_are_as_fine_as_the_samples() -> None:
    """Half an hour of history: the whole samples of five minutes before, and all samples of the last minutes."""
    wholes = sampled(lambda _: (0, 500), steps=61, whole=True)
    recent = sampled(lambda ago_s: (0, 500 + 7 * (ago_s <= 90)), steps=7)
    made = make_report(facts([commit(0)], [507], overview=wholes, recent=recent))
    line = made.series.lines["g", "orders", 0]
    changed_ms = made.series.start_ms + int(np.argmax(line == 507)) * made.series.step_ms
    assert 0 <= changed_ms - (NOW - 90_000) < made.series.step_ms


def test_a_trend_is_the_slope_of_what_is_known() -> None:
    line = np.array([UNKNOWN, 100, 160, 220, 280])
    assert slope_per_s(line, 60_000, 240_000) == pytest.approx(1.0)
    assert slope_per_s(line, 60_000, 60_000) == pytest.approx(1.0)
    assert slope_per_s(np.array([UNKNOWN, UNKNOWN, UNKNOWN, 5, 6]), 60_000, 240_000) is None


def test_a_groups_line_is_the_sum_of_its_partitions() -> None:
    history = pa.concat_tables(
        [
            sample([log(50), log(90, 1)], [commit(10), commit(20, 1)], {}, NOW - 60_000),
            sample([log(60), log(90, 1)], [commit(10), commit(20, 1)], {}, NOW),
        ]
    )
    found = series(history, NOW, 120_000, 3)
    assert found.total(found.lines).tolist() == [UNKNOWN, 110, 120]


def test_a_day_of_history_makes_a_trend_of_the_group() -> None:
    whole = sampled(lambda ago_s: (0, 90_000 - ago_s), steps=2_881, whole=True)
    group = only(make_report(facts([commit(0)], [90_000], overview=whole)))
    assert group.trend_1h_per_s == pytest.approx(1, rel=0.01)
    assert group.trend_24h_per_s == pytest.approx(1, rel=0.01)


# -- outputs -------------------------------------------------------------------------------------------------------


def hostile() -> Report:
    names = ('g "quoted" \\ and\nlines', "</script><script>alert(1)</script>")
    commits = [commit(100, group=name) for name in names]
    return make_report(facts(commits, [1_000]))


def test_prometheus_has_lag_exporters_names_and_labels() -> None:
    made = make_report(facts([commit(100, 0), commit(400, 1)], [1_000, 1_000]))
    text = exposition(gauges(made, facts([], [1_000, 1_000]).logs))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {
        "kafka_partition_latest_offset",
        "kafka_partition_earliest_offset",
        "kafka_partition_last_stable_offset",
        *(f"kafka_consumergroup_group_{name}" for name in NAMES),
    }
    lag = {
        sample.labels["partition"]: sample.value
        for sample in families["kafka_consumergroup_group_lag"].samples
    }
    assert lag == {"0": 900, "1": 600}
    labels = set(families["kafka_consumergroup_group_lag"].samples[0].labels)
    assert labels == {
        "cluster_name",
        "group",
        "topic",
        "partition",
        "member_host",
        "consumer_id",
        "client_id",
    }
    (total,) = families["kafka_consumergroup_group_topic_sum_lag"].samples
    assert (total.labels, total.value) == ({"cluster_name": "test", "group": "g", "topic": "orders"}, 1_500)
    assert families["kafka_consumergroup_group_eta_seconds"].samples == [], "nobody knows it"
    assert {sample.value for sample in families["kafka_consumergroup_group_status"].samples} == {0}
    assert {sample.value for sample in families["kafka_consumergroup_group_lag_seconds"].samples} == {5}


def test_prometheus_has_no_lag_of_a_partition_without_a_commit_but_says_how_much_is_there() -> None:
    """An alert on lag must not fire for a group that starts at the latest record."""
    given = facts([commit(100)], [1_000, 400])
    lags = [replace(given.lags[0], lost=30), lag_of_all(1, 400)]
    made = make_report(replace(given, lags=lags, positions=[*given.positions, unplaced(1)]))
    families = text_string_to_metric_families(exposition(gauges(made, [])))
    found = {family.name.removeprefix("kafka_consumergroup_group_"): family.samples for family in families}
    for name in ("offset", "lag", "lost", "lag_seconds", "expires_seconds", "status"):
        assert [each.labels["partition"] for each in found[name]] == ["0"], name
    values = {name: found[name][0].value for name in ("lost", "status", "sum_lag", "topic_sum_lag")}
    assert values == {"lost": 30, "status": 7, "sum_lag": 900, "topic_sum_lag": 900}
    (left,) = found["uncommitted_lag"]
    assert (left.labels, left.value) == ({"cluster_name": "test", "group": "g", "topic": "orders"}, 400)


def test_prometheus_gives_any_name_back() -> None:
    made = hostile()
    families = text_string_to_metric_families(exposition(gauges(made, [])))
    found = {sample.labels["group"] for family in families for sample in family.samples}
    assert found == {group.group for group in made.groups}


def test_the_table_of_partitions_has_every_field() -> None:
    (row, _) = partitions_table(hostile()).to_pylist()
    assert (row["cluster"], row["records"], row["status"], row["eta_ms"]) == ("test", 900, "UNKNOWN", None)


def test_the_farthest_behind_come_first_by_time_then_by_records() -> None:
    commits = [commit(offset, group=name) for name, offset in (("a", 900), ("b", 10), ("c", 500))]
    lags = [lag_of(one, 1_000, time_ms=ms) for one, ms in zip(commits, (9, 5, 5), strict=True)]
    made = make_report(replace(facts(commits, [1_000]), lags=lags))
    assert [row.group for row in farthest(made.partitions, 2)] == ["a", "b"]
    assert [row.group for row in farthest(made.groups, None)] == ["a", "b", "c"]

"""Statuses are Burrow's: the SQL agrees with a port of its rules that shares nothing with it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.lake.lag.owners import GroupPartition
from kafscale.lake.lag.samples import SAMPLES
from kafscale.lake.lag.status import NUMBERS, Rules, Status, judge, worst

NOW = 1_700_000_000_000
STEP = 30_000


@dataclass(frozen=True)
class Look:
    """What a sampler saw of one partition at one moment."""

    ts: int
    committed: int
    commit_ts: int
    log_end: int
    stable_end: int | None = None  # None: in files from before transactions

    @property
    def end(self) -> int:
        """What the partition is judged by: the last stable offset, unless the group has committed more."""
        if self.stable_end is None or self.committed > self.stable_end:
            return self.log_end
        return self.stable_end

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


# -- the port: a ring of commits with the lag at each, a ring of the log's ends, rule after rule -----------------


def port(looks: Sequence[Look], now: int, rules: Rules) -> str:
    commits: list[Look] = []
    for look in looks:
        known = [(each.committed, each.commit_ts) for each in commits]
        if (look.committed, look.commit_ts) not in known:
            commits.append(look)
    commits = sorted(commits, key=lambda look: look.commit_ts)[-rules.intervals :]
    ends = [look.end for look in looks][-rules.intervals :]
    return verdict(commits, ends, looks[-1].lag, now)


def verdict(commits: Sequence[Look], ends: Sequence[int], lag_now: int, now: int) -> str:
    if lag_now == 0:
        return "OK"
    if stopped(commits, now) and not at_the_end_lately(commits, ends):
        return "STOP"
    index = stepped_back(commits)
    if index != -1 and not regained(commits, index):
        return "REWIND"
    if any(commit.lag == 0 for commit in commits):
        return "OK"
    if all(a.committed == b.committed for a, b in zip(commits, commits[1:], strict=False)):
        return "STALL"
    if not any(b.lag < a.lag for a, b in zip(commits, commits[1:], strict=False)):
        return "WARN"
    return "OK"


def stopped(commits: Sequence[Look], now: int) -> bool:
    return now - commits[-1].commit_ts > commits[-1].commit_ts - commits[0].commit_ts


def at_the_end_lately(commits: Sequence[Look], ends: Sequence[int]) -> bool:
    return any(end <= commits[-1].committed for end in ends)


def stepped_back(commits: Sequence[Look]) -> int:
    for i in range(1, len(commits)):
        if commits[i].committed < commits[i - 1].committed:
            return i
    return -1


def regained(commits: Sequence[Look], index: int) -> bool:
    return any(commit.committed >= commits[index - 1].committed for commit in commits[index:])


# -- partitions of every kind ------------------------------------------------------------------------------------

Kind = Callable[[random.Random, int], tuple[int, bool, int]]
"""(chance, step) -> by how much the offset moves, whether something is committed, by how much the log grows"""


def steady(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return chance.randint(90, 110), True, 100


def slow(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return chance.randint(10, 60), True, 100


def stuck(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return 0, True, 100


def silent(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return 50, step < 12, 100


def going_back(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return (-5_000 if step == 16 else chance.choice((20, 100, 4_000))), True, 100


def now_and_then(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return chance.randint(0, 1_000), chance.random() < 0.4, chance.choice((0, 0, 300))


def quiet_topic(chance: random.Random, step: int) -> tuple[int, bool, int]:
    return 10, chance.random() < 0.5, 1 if step > 17 else 0


KINDS: tuple[Kind, ...] = (steady, slow, stuck, silent, going_back, now_and_then, quiet_topic)


def watched(kind: Kind, chance: random.Random, steps: int = 20) -> list[Look]:
    end = chance.randint(10_000, 20_000)
    committed = end - chance.choice((0, 0, 500, 9_000))
    commit_ts = NOW - steps * STEP - chance.randint(0, STEP)
    looks = []
    for step in range(steps):
        ts = NOW - (steps - 1 - step) * STEP
        moved, commits, grown = kind(chance, step)
        end += grown
        if commits:
            committed = max(0, min(end, committed + moved))
            commit_ts = ts - chance.randint(1, STEP - 1)
        looks.append(Look(ts, committed, commit_ts, end))
    return looks


def table(partitions: Sequence[Sequence[Look]]) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "ts": look.ts,
            "group_id": f"g{number % 7}",
            "topic": "t",
            "partition": number,
            "committed": look.committed,
            "commit_ts": look.commit_ts,
            "log_start": 0,
            "log_end": look.log_end,
            "stable_end": look.stable_end,
            "lag": max(0, look.log_end - look.committed),
        }
        for number, looks in enumerate(partitions)
        for look in looks
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def of(number: int) -> GroupPartition:
    return f"g{number % 7}", "t", number


@pytest.mark.parametrize("rules", [Rules(), Rules(intervals=5)], ids=str)
def test_a_thousand_partitions_of_every_kind_are_judged_as_burrow_judges_them(rules: Rules) -> None:
    chance = random.Random(f"{rules}")
    partitions = [watched(KINDS[number % len(KINDS)], chance) for number in range(1_400)]
    found = judge(table(partitions), NOW, rules)
    expected = {of(number): port(looks, NOW, rules) for number, looks in enumerate(partitions)}
    assert {place: judged.status.value for place, judged in found.items()} == expected
    assert set(expected.values()) == {"OK", "WARN", "STOP", "STALL", "REWIND"}, Counter(expected.values())


@st.composite
def any_looks(draw: st.DrawFn) -> list[Look]:
    steps = draw(st.integers(1, 14))
    end = committed = draw(st.integers(5, 8))
    commit_ts = NOW - steps * STEP
    looks = []
    for step in range(steps):
        ts = NOW - (steps - 1 - step) * STEP
        end += draw(st.integers(0, 3))
        if draw(st.booleans()):
            committed = draw(st.integers(max(0, end - 8), end))
            commit_ts = ts - draw(st.sampled_from((0, 1, STEP - 1)))
        stable_end = draw(st.none() | st.integers(max(0, end - 8), end))
        looks.append(Look(ts, committed, commit_ts, end, stable_end))
    return looks


@settings(max_examples=30)  # DuckDB plans each anew
@given(
    partitions=st.lists(any_looks(), min_size=1, max_size=20),
    rules=st.builds(Rules, intervals=st.integers(1, 12)),
    late=st.integers(0, 3 * STEP),
)
def test_whatever_was_sampled_the_sql_says_what_the_port_says(
    partitions: list[list[Look]], rules: Rules, late: int
) -> None:
    """`late` is no more than the window's edge: the log's ends are those of the last `intervals` samples."""
    now = NOW + late % STEP
    found = judge(table(partitions), now, rules)
    for number, looks in enumerate(partitions):
        assert found[of(number)].status.value == port(looks, now, rules), looks


@pytest.mark.parametrize(("committed", "status"), [(40, "OK"), (39, "STOP"), (41, "STOP")])
def test_a_group_that_waits_for_an_open_transaction_has_not_stopped(committed: int, status: str) -> None:
    """It is at the last stable offset, 40. A group that has committed more is not read_committed."""
    looks = [Look(NOW - STEP * n, committed, NOW - STEP * 30, 90 - n, 40) for n in range(20, -1, -1)]
    assert judge(table([looks]), NOW)[of(0)].status.value == status


def test_completeness_is_the_share_of_the_window_that_has_commits() -> None:
    looks = [Look(NOW - STEP, 5, NOW - STEP - 1, 9), Look(NOW, 6, NOW - 1, 9)]
    assert judge(table([looks]), NOW)[of(0)].complete == 0.2


def test_an_empty_history_judges_nobody() -> None:
    assert judge(SAMPLES.empty_table(), NOW) == {}


def test_a_group_is_as_its_worst_partition_and_every_trouble_is_an_error() -> None:
    assert worst([Status.OK, Status.WARN, Status.OK]) is Status.WARN
    assert worst([Status.OK, Status.UNKNOWN]) is Status.UNKNOWN
    assert {worst([Status.WARN, each]) for each in (Status.STOP, Status.STALL, Status.REWIND)} == {Status.ERR}
    assert worst([Status.LOST, Status.STOP, Status.AHEAD]) is Status.LOST
    assert worst([Status.REPLACED, Status.STOP, Status.AHEAD]) is Status.AHEAD
    assert worst([Status.REPLACED, Status.STOP]) is Status.REPLACED


def test_numbers_are_burrows() -> None:
    assert [NUMBERS[status] for status in Status] == list(range(10))
    assert list(Status)[7:] == [Status.LOST, Status.AHEAD, Status.REPLACED], "Burrow has no 7, 8 and 9"


def test_without_samples_nothing_is_judged_and_duckdb_is_not_loaded() -> None:
    program = (
        "import sys; from kafscale.lake.lag.samples import SAMPLES; from kafscale.lake.lag.status import judge; "
        "import kafscale.lake.lag.prometheus, kafscale.lake.lag.sampler; "
        "print(judge(SAMPLES.empty_table(), 0), 'duckdb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["{}", "False"]

"""The goals of speed: what a load costs KafScale in CPU, and rates and latencies, as medians of three rounds.

`python -m bench --goals --rounds 3` measures no more than this, in less than half an hour, into bench/results/goals/. A
whole run has these figures too. docs/performance-history.md shows the newest of both. The goals were set on one machine
(2 virtual cores, AMD EPYC); `before` is what 62ee45d9 needed there on 2026-11-28.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.columns import DIRECTORY, S3, Shown
from bench.results import PER_100K, PER_GB, RESULTS, Line, Run, of_part, shown

GOAL_RESULTS: Final = RESULTS / "goals"
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure of one line on one system, which is to be at least or at most so much."""

    line: Line
    on: Shown
    column: str
    before: float
    at_least: float | None = None
    at_most: float | None = None
    what: str = ""
    """Of the figure, if the name of its column does not say it."""

    def row(self, run: Run) -> str:
        found = self.on.median(run, self.line, self.column)
        figure, verdict = (
            ("not measured", "open") if found is None else (shown([found]), self._verdict(found))
        )
        what = self.what or self.column
        return (
            f"| {self.line.what} | {self.on.label} | {what} | {shown([self.before])} | {self._wanted} "
            f"| {figure} | {verdict} |"
        )

    def _verdict(self, found: float) -> str:
        met = (self.at_most is None or found <= self.at_most) and (
            self.at_least is None or found >= self.at_least
        )
        return "met" if met else "missed"

    @property
    def _wanted(self) -> str:
        if self.at_most is not None:
            return f"at most {shown([self.at_most])}"
        assert self.at_least is not None, self
        return f"at least {shown([self.at_least])}"


def _goals() -> Iterator[Goal]:
    many, some, lone = Line.PRODUCERS_64, Line.PRODUCERS_16, Line.ONE_PRODUCER
    yield Goal(line=many, on=DIRECTORY, column=PER_100K, before=15.7, at_most=10)
    yield Goal(line=many, on=DIRECTORY, column="acked/s", before=7_188, at_least=10_000)
    yield Goal(line=many, on=DIRECTORY, column="p50 ms", before=8.4, at_most=7)
    yield Goal(line=many, on=S3, column=PER_100K, before=18.0, at_most=12)
    yield Goal(line=many, on=S3, column="acked/s", before=6_076, at_least=8_000)
    yield Goal(line=some, on=DIRECTORY, column=PER_100K, before=38, at_most=28)
    yield Goal(line=lone, on=DIRECTORY, column="p50 ms", before=2.2, at_most=1.9)
    wide, narrow = Line.TWELVE_PARTITIONS, Line.ONE_PARTITION
    yield Goal(line=wide, on=DIRECTORY, column=PER_GB, before=9.7, at_most=7.5)
    yield Goal(line=wide, on=DIRECTORY, column="records/s", before=81_833, at_least=95_000)
    yield Goal(
        line=wide,
        on=DIRECTORY,
        column=of_part("fetch"),
        what="CPU s per GB of fetch, which nobody asks for records",
        before=0.33,
        at_most=0.1,
    )
    yield Goal(line=narrow, on=DIRECTORY, column=PER_GB, before=18, at_most=12)
    yield Goal(line=narrow, on=S3, column=PER_GB, before=33, at_most=24)
    yield Goal(line=Line.END_TO_END, on=DIRECTORY, column=PER_100K, before=155, at_most=90)
    yield Goal(line=Line.END_TO_END, on=DIRECTORY, column="p50 ms", before=7.4, at_most=8)
    yield Goal(line=Line.CATCH_UP_HOT, on=DIRECTORY, column=PER_GB, before=1.4, at_most=0.9)


GOALS: Final = tuple(_goals())
GOAL_LINES: Final = frozenset(goal.line for goal in GOALS)
GOAL_SYSTEMS: Final = tuple(dict.fromkeys(goal.on.name for goal in GOALS))
"""By their names in a run."""


def goals(run: Run) -> str:
    rows = ["| line | on | figure | before | goal | newest run | |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*rows, *(goal.row(run) for goal in GOALS)])

"""The goals of speed: each compares KafScale with another system in one run, by the medians of three rounds.

`python -m bench --goals --rounds 3` measures no more than this, in half an hour, into bench/results/goals/. A whole run
has these figures too. docs/performance-history.md shows the newest of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.columns import DIRECTORY, KAFKA, KAFKA_FLUSH, PUT, PUT_AND_COMMIT, S3, Shown
from bench.results import RESULTS, Line, Run

GOAL_RESULTS: Final = RESULTS / "goals"
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The figure divided by the other one is at least `at_least` or at most `at_most`. Or it is at most `plus` more."""

    what: str
    system: Shown
    line: Line
    against: Shown
    column: int = 0
    at_least: float | None = None
    at_most: float | None = None
    plus: float | None = None

    def row(self, run: Run) -> str:
        own = self.system.median(run, self.line, self.column)
        other = self.against.median(run, self.line, self.column)
        if own is None or other is None:
            found, verdict = "not measured", "open"
        elif self.plus is not None:
            found, verdict = f"+ {own - other:.1f} ms", _verdict(own - other <= self.plus)
        elif self.at_most is not None:
            found, verdict = f"{own / other:.2f}x", _verdict(own / other <= self.at_most)
        else:
            assert self.at_least is not None, self.what
            found, verdict = f"{own / other:.2f}x", _verdict(own / other >= self.at_least)
        return f"| {self.what} | {self.against.label} | {self._wanted} | {found} | {verdict} |"

    @property
    def _wanted(self) -> str:
        if self.plus is not None:
            return f"at most + {self.plus:g} ms"
        return f"at most {self.at_most:g}x" if self.at_most is not None else f"at least {self.at_least:g}x"


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


GOALS: Final = (
    Goal(
        what="12 partitions, directory",
        system=DIRECTORY,
        line=Line.TWELVE_PARTITIONS,
        against=KAFKA_FLUSH,
        at_least=2.0,
    ),
    Goal(
        what="64 producers, directory",
        system=DIRECTORY,
        line=Line.PRODUCERS_64,
        against=KAFKA_FLUSH,
        at_least=3.0,
    ),
    Goal(
        what="1 producer, directory, p50",
        system=DIRECTORY,
        line=Line.ONE_PRODUCER,
        against=KAFKA_FLUSH,
        column=1,
        at_most=2.5,
    ),
    Goal(
        what="one consumer catches up, directory",
        system=DIRECTORY,
        line=Line.CATCH_UP_HOT,
        against=KAFKA,
        at_least=0.9,
    ),
    Goal(what="12 partitions, S3 near", system=S3, line=Line.TWELVE_PARTITIONS, against=PUT, at_least=0.5),
    Goal(
        what="1 producer, S3 near, p50",
        system=S3,
        line=Line.ONE_PRODUCER,
        against=PUT_AND_COMMIT,
        column=1,
        plus=3.0,
    ),
    Goal(
        what="12 partitions, 100 B records, directory",
        system=DIRECTORY,
        line=Line.TWELVE_SMALL,
        against=KAFKA_FLUSH,
        at_least=1.0,
    ),
)

GOAL_LINES: Final = frozenset(goal.line for goal in GOALS)
GOAL_SYSTEMS: Final = tuple(
    dict.fromkeys(side.name for goal in GOALS for side in (goal.system, goal.against))
)
"""By their names in a run."""


def goals(run: Run) -> str:
    rows = ["| line | against | goal | newest run | |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *(goal.row(run) for goal in GOALS)])

"""`python -m bench.page`: writes the table and the picture of docs/performance.md, and the goals of the page behind it.

Law: every figure between the marks of these pages comes from the newest file of bench/results/, so page and file
cannot differ: `make gen-check` runs this with --check. The rest of the pages is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.picture import DARK, LIGHT, Bar, Panel, drawn
from bench.results import Line, Run, newest, read, shown
from tools.generated import ROOT, write_or_check

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "performance.md"
BEHIND: Final = DOCS / "performance-history.md"
PICTURES: Final = {LIGHT: DOCS / "performance-light.svg", DARK: DOCS / "performance-dark.svg"}
FLUSHED, STORED, CACHED = CLASSES = (
    "after a flush to disk",
    "after an S3 PUT",
    "in the page cache only",
)
"""When a system acknowledges a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A column of the table. `name`: the system's name in a run."""

    label: str
    durability: str
    name: str

    def median(self, run: Run, line: Line, column: int = 0) -> float | None:
        return run.median(self.name, line, column)


DIRECTORY: Final = Shown(label="KafScale, directory", durability=FLUSHED, name="kafscale-dir")
KAFKA_FLUSH: Final = Shown(label="Apache Kafka, flush before ack", durability=FLUSHED, name="kafka-flush")
S3: Final = Shown(label="KafScale, S3 near", durability=STORED, name="kafscale-s3")
S3_FAR: Final = Shown(label="KafScale, S3 far", durability=STORED, name="kafscale-s3-far")
KAFKA: Final = Shown(label="Apache Kafka, defaults", durability=CACHED, name="kafka")
PUT: Final = Shown(label="PUTs alone", durability=STORED, name="put-alone")
PUT_AND_COMMIT: Final = Shown(label="a PUT and a commit alone", durability=STORED, name="put-and-commit")
SYSTEMS: Final = (DIRECTORY, KAFKA_FLUSH, S3, S3_FAR, KAFKA)

ROWS: Final[Sequence[tuple[Line, int]]] = (
    (Line.ONE_PARTITION, 0),
    (Line.TWELVE_PARTITIONS, 0),
    (Line.TWELVE_SMALL, 0),
    (Line.HUNDRED_PARTITIONS, 0),
    (Line.THOUSAND_PARTITIONS, 0),
    (Line.ONE_PRODUCER, 0),
    (Line.ONE_PRODUCER, 1),
    (Line.PRODUCERS_64, 0),
    (Line.PRODUCERS_64, 1),
    (Line.PARTITIONS_64, 0),
    (Line.ONE_REQUEST, 0),
    (Line.CATCH_UP_HOT, 0),
    (Line.CONSUME_JAVA, 0),
    (Line.CATCH_UP_COLD, 0),
    (Line.END_TO_END, 0),
    (Line.RESTART, 0),
)
"""Line and column. A row of which the run has nothing is left out."""

PANELS: Final = (
    ("produce to 12 partitions, records/s", Line.TWELVE_PARTITIONS, 0),
    ("64 producers, one record each, acked/s", Line.PRODUCERS_64, 0),
    ("1 producer, ms to the ack, p50 (less is better)", Line.ONE_PRODUCER, 1),
    ("one consumer catches up, records/s", Line.CATCH_UP_HOT, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The figure divided by the other one is at least `ratio`, or at most; or the two differ by at most `plus`."""

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


def table(run: Run) -> str:
    systems = [system for system in SYSTEMS if system.name in run.systems]
    rows = [
        "| |" + "".join(f" {system.label} |" for system in systems),
        "|---|" + "---|" * len(systems),
        "| a record is acknowledged |" + "".join(f" {system.durability} |" for system in systems),
    ]
    for line, column in ROWS:
        values = [system.median(run, line, column) for system in systems]
        if any(value is not None for value in values):
            cells = "".join(f" {'-' if value is None else shown((value,))} |" for value in values)
            rows.append(f"| {line.what}, {line.columns[column]} |{cells}")
    return "\n".join(rows)


def about(run: Run, file: Path) -> str:
    """When and where, and what the file has not."""
    machine = {key: value for key, value in run.machine.items() if key != "cores"}
    facts = [f"{run.began.replace('T', ' ')} UTC" if "T" in run.began else run.began]
    facts += [f"{run.machine.get('cores', '?')} cores that also run the load generators"]
    facts += [f"{key.replace('_', ' ')} {value}" for key, value in machine.items()]
    facts += [f"{run.rounds} rounds, the median of each figure" if run.rounds > 1 else "one round"]
    facts += [f"commit {run.commit}"] if run.commit else []
    facts += [f"{name} {version}" for name, version in run.versions.items()]
    name = file.relative_to(ROOT)
    text = [f"{'; '.join(facts)}. Every round's figures: [{name}](../{name})."]
    if run.missing:
        text += ["", "What this run lacks:", "", *(f"- {one}" for one in run.missing)]
    return "\n".join(text)


def goals(run: Run) -> str:
    rows = ["| line | against | goal | newest run | |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *(goal.row(run) for goal in GOALS)])


def panels(run: Run) -> list[Panel]:
    systems = [system for system in SYSTEMS if system.name in run.systems]
    return [
        Panel(
            title=title,
            bars=[
                Bar(
                    name=system.label,
                    value=system.median(run, line, column),
                    fill=CLASSES.index(system.durability),
                )
                for system in systems
            ],
        )
        for title, line, column in PANELS
    ]


def filled(text: str, mark: str, block: str) -> str:
    """The page with the block between the marks `<!-- mark -->` and `<!-- /mark -->`, which it must have once."""
    begin, end = f"<!-- {mark} -->\n", f"\n<!-- /{mark} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    assert found, f"the page has no mark where {mark} begins"
    assert closed, f"the page has no mark where {mark} ends"
    return f"{before}{begin}{block}{end}{after}"


def files(file: Path) -> dict[Path, str]:
    """All generated texts of the run in this file, by path."""
    run = read(file)
    page = filled(filled(PAGE.read_text(), "table", table(run)), "run", about(run, file))
    made = {PAGE: page, BEHIND: filled(BEHIND.read_text(), "goals", goals(run))}
    captions = [f"acknowledged {name}" for name in CLASSES]
    return made | {path: drawn(panels(run), captions, theme) for theme, path in PICTURES.items()}


def main() -> int:
    return write_or_check(files(newest()))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.page`: writes the table and the picture of docs/performance.md, and goals and what commits cost into
the page behind it.

Law: every figure between the marks of these pages comes from the newest file of bench/results/ (the goals: also of
bench/results/goals/; commits: of bench/results/transactions/), so page and file cannot differ: `make gen-check` runs
this with --check. The rest of the pages is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.columns import CLASSES, SYSTEMS
from bench.goals import GOAL_RESULTS, goals
from bench.picture import DARK, LIGHT, Bar, Panel, drawn
from bench.results import RESULTS, Line, Run, newest, read, shown
from bench.transactions import COMMIT_RESULTS
from bench.transactions import table as commits
from tools.generated import ROOT, write_or_check

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "performance.md"
BEHIND: Final = DOCS / "performance-history.md"
PICTURES: Final = {LIGHT: DOCS / "performance-light.svg", DARK: DOCS / "performance-dark.svg"}

ROWS: Final[Sequence[tuple[Line, int]]] = (
    (Line.ONE_PARTITION, 0),
    (Line.TWELVE_PARTITIONS, 0),
    (Line.TWELVE_SMALL, 0),
    (Line.HUNDRED_PARTITIONS, 0),
    (Line.THOUSAND_PARTITIONS, 0),
    (Line.ONE_PRODUCER, 0),
    (Line.ONE_PRODUCER, 1),
    (Line.ONE_PRODUCER, 2),
    (Line.PRODUCERS_64, 0),
    (Line.PRODUCERS_64, 1),
    (Line.PRODUCERS_64, 2),
    (Line.PARTITIONS_64, 0),
    (Line.ONE_REQUEST, 0),
    (Line.CATCH_UP_HOT, 0),
    (Line.CONSUME_JAVA, 0),
    (Line.CATCH_UP_COLD, 0),
    (Line.END_TO_END, 0),
    (Line.END_TO_END, 1),
    (Line.RESTART, 0),
)
"""Line and column. A row of which the run has nothing is left out."""

PANELS: Final = (
    ("produce to 12 partitions, records/s", Line.TWELVE_PARTITIONS, 0),
    ("64 producers, one record each, acked/s", Line.PRODUCERS_64, 0),
    ("1 producer, ms to the ack, p50 (less is better)", Line.ONE_PRODUCER, 1),
    ("one consumer catches up, records/s", Line.CATCH_UP_HOT, 0),
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


def files(file: Path, goals_file: Path, commits_file: Path) -> dict[Path, str]:
    """All generated texts, by path, of the run in this file, of the run with the goals, and of the one with commits."""
    run = read(file)
    page = filled(filled(PAGE.read_text(), "table", table(run)), "run", about(run, file))
    reached = read(goals_file)
    behind = f"{goals(reached)}\n\n{about(reached, goals_file)}"
    committed = read(commits_file)
    cost = f"{commits(committed)}\n\n{about(committed, commits_file)}"
    made = {PAGE: page, BEHIND: filled(filled(BEHIND.read_text(), "goals", behind), "commits", cost)}
    captions = [f"acknowledged {name}" for name in CLASSES]
    return made | {path: drawn(panels(run), captions, theme) for theme, path in PICTURES.items()}


def main() -> int:
    return write_or_check(files(newest(RESULTS), newest(RESULTS, GOAL_RESULTS), newest(COMMIT_RESULTS)))


if __name__ == "__main__":
    sys.exit(main())

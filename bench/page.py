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

from bench.columns import CLASSES, SYSTEMS, Shown
from bench.goals import GOAL_RESULTS, goals
from bench.picture import DARK, LIGHT, Bar, Panel, drawn
from bench.results import PER_100K, PER_FLUSH, PER_GB, RESULTS, Line, Run, newest, of_part, read, shown
from bench.transactions import COMMIT_RESULTS
from bench.transactions import table as commits
from tools.generated import ROOT, write_or_check

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "performance.md"
BEHIND: Final = DOCS / "performance-history.md"
NONE: Final = "-"
NO_CPU: Final = "CPU seconds: it is older than their measurement, and warmed up with a fifth of the records."
PICTURES: Final = {LIGHT: DOCS / "performance-light.svg", DARK: DOCS / "performance-dark.svg"}

ROWS: Final[Sequence[tuple[Line, str]]] = (
    *(
        (line, column)
        for line in (
            Line.ONE_PARTITION,
            Line.TWELVE_PARTITIONS,
            Line.TWELVE_SMALL,
            Line.HUNDRED_PARTITIONS,
            Line.THOUSAND_PARTITIONS,
        )
        for column in ("records/s", PER_GB)
    ),
    *(
        (line, column)
        for line in (Line.ONE_PRODUCER, Line.PRODUCERS_16, Line.PRODUCERS_64)
        for column in ("acked/s", "p50 ms", "p99 ms", PER_100K, PER_FLUSH)
    ),
    (Line.PARTITIONS_64, "acked/s"),
    (Line.PARTITIONS_64, PER_100K),
    (Line.ONE_REQUEST, "p50 ms"),
    (Line.CATCH_UP_HOT, "records/s"),
    (Line.CATCH_UP_HOT, PER_GB),
    (Line.CONSUME_JAVA, "records/s"),
    (Line.CONSUME_JAVA, PER_GB),
    (Line.CATCH_UP_COLD, "records/s"),
    (Line.END_TO_END, "p50 ms"),
    (Line.END_TO_END, "p99 ms"),
    (Line.END_TO_END, PER_100K),
    (Line.RESTART, "s to the first ack and read"),
)
"""Line and column. A row of which the run has nothing is left out."""
APART: Final = ("etcd", "store")
"""Parts of the CPU that the page shows in brackets."""

PANELS: Final = (
    ("produce to 12 partitions, records/s", Line.TWELVE_PARTITIONS, "records/s"),
    ("64 producers, one record each, acked/s", Line.PRODUCERS_64, "acked/s"),
    ("1 producer, ms to the ack, p50 (less is better)", Line.ONE_PRODUCER, "p50 ms"),
    ("one consumer catches up, records/s", Line.CATCH_UP_HOT, "records/s"),
    ("12 partitions, CPU s per GB (less is better)", Line.TWELVE_PARTITIONS, PER_GB),
    ("64 producers, CPU s per 100k (less is better)", Line.PRODUCERS_64, PER_100K),
)


def table(run: Run) -> str:
    systems = [system for system in SYSTEMS if system.name in run.systems]
    rows = [
        "| |" + "".join(f" {system.label} |" for system in systems),
        "|---|" + "---|" * len(systems),
        "| a record is acknowledged |" + "".join(f" {system.durability} |" for system in systems),
    ]
    for line, column in ROWS:
        cells = [_cell(run, system, line, column) for system in systems]
        if any(cell != NONE for cell in cells):
            rows.append(f"| {line.what}, {column} |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(rows)


def _cell(run: Run, system: Shown, line: Line, column: str) -> str:
    """A figure. That of CPU has the parts of etcd and of the store in brackets, if there are such processes."""
    value = system.median(run, line, column)
    if value is None:
        return NONE
    if column not in (PER_GB, PER_100K):
        return shown((value,))
    apart = {part: system.median(run, line, of_part(part)) for part in APART}
    inside = ", ".join(f"{part} {shown((seconds,))}" for part, seconds in apart.items() if seconds)
    return shown((value,)) + (f" ({inside})" if inside else "")


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
    missing = (*run.missing, *([] if _has_cpu(run) else [NO_CPU]))
    if missing:
        text += ["", "What this run lacks:", "", *(f"- {one}" for one in missing)]
    return "\n".join(text)


def _has_cpu(run: Run) -> bool:
    return any(
        PER_GB in found.columns or PER_100K in found.columns
        for lines in run.systems.values()
        for found in lines.values()
    )


def panels(run: Run) -> list[Panel]:
    """Those of which the run has something."""
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
        if any(system.median(run, line, column) is not None for system in systems)
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

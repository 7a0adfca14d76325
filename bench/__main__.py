"""`make bench`: the lines of docs/performance.md, all on one machine in one run.

Figures are for comparing within a run: machines are shared and noisy. Nothing here asserts a time. A whole run of three
rounds takes some hours; `python -m bench --only kafscale-dir,kafka-flush --quick` runs part of it, and `--lines` names
lines. `--goals` runs the lines and systems of the goals, and prints which of them are met. `kafscale-dir@1a2b3c4` is
KafScale as of that commit. A round has three parts (`PARTS`), and in each part the systems run in turns, each with an
empty store. Each round begins with another system, because the first one of a part runs after the longest lines of the
part before, and was up to a quarter slower for it. The table has the median of each figure. A line with CPU has a pass
of the same size before the measured one, because a broker in a JVM compiles itself first (`bench.spent`: what counts).

A run is kept in out/bench/ by its date, after each turn. `--resume FILE` goes on with a run that was stopped: it
measures what that file has not. A whole run (every system, every line, all records) goes to bench/results/ at its end,
and `make gen` makes docs/performance.md of the newest file there. One with three rounds of all goals, but
not whole, goes to bench/results/goals/.

When a system has stopped, its files are emptied: in a round it writes up to 15 GB, and no disk holds those of a whole
run. They are removed after the last measurement only. An ext4 without a journal skips the inodes that were freed within
the last minutes when it creates a file (ext4's recently_deleted), so the next system would pay for the removal of
thousands of files. For the same reason, wait five minutes between two runs.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from pathlib import Path

import msgspec

from bench.goals import GOAL_LINES, GOAL_RESULTS, GOAL_SYSTEMS, ROUNDS, goals
from bench.lines import NAMES, PARTS, measure, named
from bench.machine import commit, machine, versions
from bench.results import (
    RESULTS,
    Figures,
    Line,
    Measured,
    Run,
    differences,
    of_rounds,
    read,
    rounds_of,
    shown,
    written,
)
from bench.systems import BY_NAME, SYSTEMS, emptied, system_named
from bench.tools import BUILT

Rounds = Mapping[Line, Sequence[Figures]]


def main() -> None:
    options = _options()
    lines, names = named(options.lines), options.only
    kept, head = _begun(options)
    found = {name: rounds_of(head, name) for name in names}
    begin = time.monotonic()

    def report(line: Line, figures: Figures) -> None:
        named_figures = ", ".join(
            f"{column} {shown([value])}" for column, value in zip(line.columns, figures, strict=False)
        )
        print(f"{time.monotonic() - begin:6.0f} s  {line.what}: {named_figures}", flush=True)

    def so_far() -> Run:
        systems = {name: _measured(rounds) for name, rounds in found.items() if rounds}
        return msgspec.structs.replace(head, systems=systems)

    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as folder:
        for number, part, name in turns(options.rounds, names):
            directory = Path(folder) / f"{name}-{number}-{part}"
            system = system_named(name, directory)
            its = {line for line in PARTS[part] & lines if line in system.lines}
            due = not_measured(its, found[name], number)
            if not due:
                continue
            print(f"== {name}", flush=True)
            for line, figures in measure(system, lines=due, quick=options.quick, report=report).items():
                found[name].setdefault(line, []).append(figures)
            emptied(directory)
            _keep(kept, so_far())  # a run that is stopped has its figures in it
    destination = folder_of(lines, names, options.rounds)
    if destination is not None and not options.quick:
        kept = kept.rename(destination / kept.name)
    print(f"{goals(so_far()) if options.goals else table(so_far(), lines)}\n{kept}", flush=True)


def folder_of(lines: Set[Line], names: Sequence[str], rounds: int) -> Path | None:
    """Of the repository, if a run with all records is one that the docs show."""
    if lines == set(Line) and set(names) >= set(SYSTEMS):
        return RESULTS
    if lines >= GOAL_LINES and set(names) >= set(GOAL_SYSTEMS) and rounds >= ROUNDS:
        return GOAL_RESULTS
    return None


def turns(rounds: int, names: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Round, part and system of each turn, in order."""
    for number in range(rounds):
        first = number * len(names) // rounds
        ordered = (*names[first:], *names[:first])
        yield from ((number, part, name) for part in range(len(PARTS)) for name in ordered)


def not_measured(lines: Set[Line], found: Rounds, number: int) -> Set[Line]:
    """Those whose figures of this round are not in a run that goes on. It may have begun with other lines."""
    return {line for line in lines if len(found.get(line, ())) <= number}


def _begun(options: argparse.Namespace) -> tuple[Path, Run]:
    """The file of the run, and what it has: a new one, or the one that was stopped."""
    now = datetime.datetime.now(datetime.UTC)
    new = Run(
        began=f"{now:%Y-%m-%dT%H:%M}",
        commit=commit(),
        machine=machine(),
        versions=versions(),
        quick=options.quick,
        rounds=options.rounds,
        systems={},
    )
    if options.resume is None:
        return BUILT / f"{now:%Y-%m-%dT%H%M}.json", new
    old = read(options.resume)
    if differing := differences(old, new):
        sys.exit(f"{options.resume} cannot be resumed; this run differs in: {', '.join(differing)}")
    return options.resume, old


def _keep(path: Path, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(run))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda names: names.split(","),
        default=list(SYSTEMS),
        help=f"of {', '.join(SYSTEMS)}, {', '.join(BY_NAME)}; NAME@COMMIT: an older one",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the records; for trying out")
    parser.add_argument("--lines", nargs="+", choices=NAMES, default=list(NAMES), help="which lines")
    parser.add_argument("--rounds", type=int, default=1, help="how often each system runs")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="a run of out/bench/ to go on with, with the same options"
    )
    parser.add_argument(
        "--goals",
        action="store_true",
        help="the lines and systems of the goals, in place of --lines and --only",
    )
    options = parser.parse_args()
    if options.goals:
        options.only, options.lines = list(GOAL_SYSTEMS), [line.name.lower() for line in GOAL_LINES]
    return options


def _measured(rounds: Rounds) -> dict[str, Measured]:
    return {line.name.lower(): of_rounds(line.columns, figures) for line, figures in rounds.items()}


def table(run: Run, lines: Container[Line]) -> str:
    """Medians as Markdown, with the lowest and the highest figure of several rounds in brackets."""
    rows = ["| |" + "".join(f" {name} |" for name in run.systems), "|---|" + "---|" * len(run.systems)]
    rows += [
        f"| {line.what}: {column} |" + "".join(f" {_cell(run, name, line, column)} |" for name in run.systems)
        for line in Line
        if line in lines
        for column in line.columns
    ]
    return "\n".join(rows) + "\n"


def _cell(run: Run, system: str, line: Line, column: str) -> str:
    found = run.measured(system, line)
    if found is None or column not in found.columns:
        return "-"
    place = found.columns.index(column)
    values = sorted(figures[place] for figures in found.rounds)
    spread = f" ({shown(values[:1])} to {shown(values[-1:])})" if len(values) > 1 else ""
    return shown([found.median[place]]) + spread


if __name__ == "__main__":
    main()

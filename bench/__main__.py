"""`make bench`: the lines of docs/performance.md, all on one machine in one run.

Figures are for comparing within a run: machines are shared and noisy. Nothing here asserts a time. A whole run takes
more than half an hour; `python -m bench --only kafscale-dir,kafka-flush --quick` runs part of it, and `--lines` names
lines. `kafscale-dir@1a2b3c4` is KafScale as of that commit. With `--rounds 3` the systems run in turns, A B A B A B.
The table then has the middle run of each line.

Each system has a fresh directory, and all of them are removed after the last measurement. A system's data is thousands
of files. An ext4 without a journal skips the inodes that were freed within the last minute when it creates a file
(ext4's recently_deleted), so the next system would pay for the removal of the previous one's data.
For the same reason, wait a minute between two runs.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import re
import tempfile
import time
from collections.abc import Container
from pathlib import Path

from bench.lines import NAMES, Line, measure, named
from bench.systems import SECURED, SYSTEMS, system_named
from bench.tools import BUILT

FIGURE = re.compile(r"[\d,]*\d(\.\d+)?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default=",".join(SYSTEMS),
        help=f"of {', '.join(SYSTEMS)}, {', '.join(SECURED)}; NAME@COMMIT: an older one",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the records; for trying out")
    parser.add_argument("--lines", nargs="+", choices=NAMES, default=list(NAMES), help="which lines")
    parser.add_argument("--rounds", type=int, default=1, help="how often each system runs")
    options = parser.parse_args()
    lines, names = named(options.lines), options.only.split(",")
    runs: dict[str, list[dict[Line, str]]] = {name: [] for name in names}
    begin = time.monotonic()

    def say(line: Line, figure: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line.value}: {figure}", flush=True)

    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as folder:
        for number, name in itertools.product(range(options.rounds), names):
            print(f"== {name}", flush=True)
            system = system_named(name, Path(folder) / f"{name}-{number}")
            runs[name].append(measure(system, lines=lines, quick=options.quick, report=say))
        text = _markdown({name: _middle(found) for name, found in runs.items()}, lines)
        print(text, flush=True)
        BUILT.mkdir(parents=True, exist_ok=True)
        (BUILT / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M}.md").write_text(text)


def _middle(runs: list[dict[Line, str]]) -> dict[Line, str]:
    """Of each line the figures of one run, which is in the middle by the first of them. Then the lowest and highest."""
    middle = {}
    for line in runs[0]:
        figures = sorted((run[line] for run in runs), key=_first)
        spread = f" ({_first(figures[0]):,.10g} to {_first(figures[-1]):,.10g})" if len(runs) > 1 else ""
        middle[line] = figures[len(figures) // 2] + spread
    return middle


def _first(figures: str) -> float:
    found = FIGURE.search(figures)
    return float(found[0].replace(",", "")) if found else 0.0


def _markdown(table: dict[str, dict[Line, str]], lines: Container[Line]) -> str:
    rows = ["| |" + "".join(f" {name} |" for name in table), "|---|" + "---|" * len(table)]
    rows += [
        f"| {line.value} |" + "".join(f" {figures.get(line, '-')} |" for figures in table.values())
        for line in Line
        if line in lines
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()

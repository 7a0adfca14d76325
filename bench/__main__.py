"""`make bench`: the lines of docs/performance.md, all on one machine in one run.

Figures are for comparing within a run: machines are shared and noisy. Nothing here asserts a time. A whole run takes
about twenty minutes; `python -m bench --only kafscale-dir,kafka-flush --quick` runs part of it.

Each system has a fresh directory, and all of them are removed after the last measurement. A system's data is thousands
of files. An ext4 without a journal skips the inodes that were freed within the last minute when it creates a file
(ext4's recently_deleted), so the next system would pay for the removal of the previous one's data.
For the same reason, wait a minute between two runs.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
import time
from pathlib import Path

from bench.lines import Line, measure
from bench.systems import SYSTEMS
from bench.tools import BUILT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records; for trying out")
    options = parser.parse_args()
    table: dict[str, dict[Line, str]] = {}
    begin = time.monotonic()

    def say(line: Line, figure: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line.value}: {figure}", flush=True)

    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as folder:
        for name in options.only.split(","):
            print(f"== {name}", flush=True)
            table[name] = measure(SYSTEMS[name](Path(folder) / name), quick=options.quick, report=say)
        text = _markdown(table)
        print(text, flush=True)
        BUILT.mkdir(parents=True, exist_ok=True)
        (BUILT / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M}.md").write_text(text)


def _markdown(table: dict[str, dict[Line, str]]) -> str:
    rows = ["| |" + "".join(f" {name} |" for name in table), "|---|" + "---|" * len(table)]
    rows += [
        f"| {line.value} |" + "".join(f" {figures.get(line, '-')} |" for figures in table.values())
        for line in Line
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()

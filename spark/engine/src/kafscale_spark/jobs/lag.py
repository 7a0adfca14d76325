"""The lag report: `spark-submit lag.py`. The lag of each group, whether it keeps up, and which records it may lose.

This is the report of `kafscale lag`. The driver reads etcd, the history, and a part of one segment for each
partition with lag. If the report is written to files, it is not printed, and no Spark session is started.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from kafscale.lake.group_tables import partitions_table, write_partitions
from kafscale.lake.lag.checkpoints import read_checkpoint
from kafscale.lake.lag.page import render
from kafscale.lake.lag.positions import Commit
from kafscale.lake.lag.prometheus import exposition, gauges
from kafscale.lake.lag.report import Facts, Report, farthest, make_report
from kafscale.lake.lag.sampler import Reader
from kafscale.storage.system import wall_ms

from kafscale_spark.clusters import opened, settings_of
from kafscale_spark.jobs.program import ROWS_SHOWN, answered, arguments, job_session, positive, run
from kafscale_spark.options import Request

SHOWN: Final = [
    *("group_id", "topic", "partition", "status", "records", "stable_records", "bytes", "time_ms"),
    *("lost", "at_risk", "expires_in_ms", "eta_ms", "consume_per_s", "produce_per_s", "member"),
]
"""Rows printed; files have all rows."""


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments().parse_args(argv)
    checkpoints = [each for folder in args.checkpoint or () for each in read_checkpoint(folder)]
    facts = asyncio.run(read(checkpoints, frozenset(args.group) if args.group else None))
    report = make_report(facts)
    if not write(report, facts, args):
        with job_session("lag") as spark:
            found = partitions_table(_farthest(report, args.top)).select(SHOWN)
            spark.createDataFrame(found).show(ROWS_SHOWN, truncate=False)


def _arguments() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--group", action="append", help="only this one; may be repeated")
    parser.add_argument("--top", type=positive, help="only the partitions that are farthest behind")
    parser.add_argument(
        "--checkpoint", action="append", type=Path, help="a Spark query's checkpoint folder, as a group"
    )
    parser.add_argument("--parquet", type=Path, help="write the partitions' rows to this file")
    parser.add_argument(
        "--prometheus", type=Path, help="write metrics in Prometheus' text format to this file"
    )
    parser.add_argument("--html", type=Path, help="write an HTML report to this file")
    return parser


async def read(checkpoints: Sequence[Commit], chosen: frozenset[str] | None) -> Facts:
    async with opened(settings_of(Request())) as lake:
        return await Reader(lake, chosen).facts(wall_ms(), checkpoints)


def write(report: Report, facts: Facts, args: argparse.Namespace) -> bool:
    """Whether the caller asked for any file. Raises OSError."""
    answered(args.answer, rows(_farthest(report, args.top)))
    if args.parquet is not None:
        write_partitions(report, args.parquet)
    if args.prometheus is not None:
        args.prometheus.write_text(exposition(gauges(report, facts.logs)))
    if args.html is not None:
        args.html.write_text(render(report), encoding="utf-8")
    return any(file is not None for file in (args.answer, args.parquet, args.prometheus, args.html))


def rows(report: Report) -> dict[str, list[dict[str, object]]]:
    return {
        "partitions": [asdict(row) for row in report.partitions],
        "groups": [asdict(row) for row in report.groups],
        "topics": [asdict(row) for row in report.topics],
    }


def _farthest(report: Report, top: int | None) -> Report:
    return replace(report, partitions=tuple(farthest(report.partitions, top)))


if __name__ == "__main__":
    run(main)

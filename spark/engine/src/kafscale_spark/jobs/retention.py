"""Retention: `spark-submit retention.py`. Deletes what has expired by its topic's settings; `--dry-run` shows the plan.

May be killed at any point and run again, also while upkeep runs: log starts move by compare-and-swap before deletes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kafscale.lake.retention.apply import Report, wall_ms
from kafscale.lake.retention.plan import OWN, Limits
from kafscale.lake.retention.planned import LOSSES, PLAN, Planned
from kafscale.lake.retention.summary import report_to_json
from pyspark.sql import SparkSession

from kafscale_spark.clusters import settings_of
from kafscale_spark.jobs.program import (
    add_scope,
    answered,
    arguments,
    job_session,
    notice,
    run,
    show,
    trouble,
)
from kafscale_spark.options import Request
from kafscale_spark.retention import Job


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments().parse_args(argv)
    limits = Limits(retention_ms=args.retention_ms, retention_bytes=args.retention_bytes)
    with job_session("retention") as spark:
        job = Job(spark=spark, settings=settings_of(Request()), topics=args.topic)
        if args.dry_run or limits != OWN:
            show_plan(spark, job.plan(wall_ms(), limits), limits, args.answer)
        else:
            show_result(job.retain(wall_ms(), args.grace_s), args.answer)


def _arguments() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    add_scope(parser)
    parser.add_argument(
        "--retention-ms", type=int, help="what if it were this for every topic? -1: unlimited"
    )
    parser.add_argument("--retention-bytes", type=int, help="the same for retention.bytes")
    return parser


def show_plan(spark: SparkSession, planned: Planned, limits: Limits, answer: Path | None) -> None:
    if answered(answer, asdict(planned)):
        return
    show(spark, planned.rows, PLAN)
    notice(f"{len(planned.rows)} segments of {planned.logs} logs, {planned.bytes} bytes; nothing was changed")
    if limits != OWN:
        notice(f"that is {planned.bytes - planned.bytes_own} bytes more than now; groups would lose:")
        show(spark, planned.losses, LOSSES)


def show_result(done: Report, answer: Path | None) -> None:
    if answered(answer, report_to_json(done)):
        return
    notice(
        f"{done.moved} of {done.logs} logs start later; {done.segments} segments of {done.bytes} bytes deleted"
    )
    trouble(done.missed, done.left)


if __name__ == "__main__":
    run(main)

"""Retention: `spark-submit retention.py`. Deletes what has expired by its topic's settings; `--dry-run` shows the plan.

May be killed at any point and run again, also while upkeep runs: log starts move by compare-and-swap before deletes.
`retention_what_if.py` shows the plan of other limits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kafscale.lake.retention.apply import Report
from kafscale.lake.retention.log_starts import StartsMax
from kafscale.lake.retention.report import LOSSES, PLAN, Planned, report_to_json
from kafscale.storage.system import wall_ms
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
    parser = arguments(__doc__)
    add_scope(parser)
    parser.add_argument(
        "--starts-max",
        type=Path,
        help="a JSON file, [[topic, partition, offset], …]: no log starts later, and no other log is changed",
    )
    args = parser.parse_args(argv)
    with job_session("retention") as spark:
        job = Job(spark=spark, settings=settings_of(Request()), topics=args.topic)
        if args.dry_run:
            show_plan(spark, job.plan(wall_ms()), args.answer)
        else:
            starts_max = None if args.starts_max is None else read_starts(args.starts_max)
            show_result(job.retain(wall_ms(), args.grace_s, starts_max), args.answer)


def read_starts(path: Path) -> StartsMax:
    """Raises OSError."""
    return {(topic, partition): start for topic, partition, start in json.loads(path.read_text())}


def show_plan(spark: SparkSession, planned: Planned, answer: Path | None) -> None:
    if answered(answer, asdict(planned)):
        return
    show(spark, planned.rows, PLAN)
    notice(f"{len(planned.rows)} segments of {planned.logs} logs, {planned.bytes} bytes; nothing was changed")
    notice("groups that would lose records that they have not read:")
    show(spark, planned.losses, LOSSES)
    trouble(planned.missed, 0)


def show_result(done: Report, answer: Path | None) -> None:
    if answered(answer, report_to_json(done)):
        return
    notice(
        f"{done.moved} of {done.logs} logs start later; {done.segments} segments of {done.bytes} bytes deleted"
    )
    trouble(done.missed, done.left)


if __name__ == "__main__":
    run(main)

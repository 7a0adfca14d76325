"""Compaction: `spark-submit compaction.py`. Keeps the last record of each key in logs that are due.

May be killed at any point and run again, also while upkeep runs: one compare-and-swap publishes a group, or nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kafscale.lake.compaction.report import DONE, DUE, DuePlan, Summary
from kafscale.lake.retention.report import LOSSES
from pyspark.sql import SparkSession

from kafscale_spark.clusters import settings_of
from kafscale_spark.compaction import compact, plan
from kafscale_spark.jobs.program import (
    add_scope,
    answered,
    arguments,
    job_session,
    notice,
    positive,
    run,
    show,
    trouble,
)
from kafscale_spark.options import Request


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    add_scope(parser)
    parser.add_argument("--io-bytes-per-s", type=positive, help="read and written by all tasks together")
    args = parser.parse_args(argv)
    settings = settings_of(Request())
    with job_session("compaction") as spark:
        if args.dry_run:
            show_plan(spark, plan(settings, args.topic), args.answer)
        else:
            context = spark.sparkContext
            done = compact(context, settings, args.topic, args.io_bytes_per_s, args.grace_s)
            show_result(spark, done, args.answer)


def show_plan(spark: SparkSession, due: DuePlan, answer: Path | None) -> None:
    if answered(answer, asdict(due)):
        return
    show(spark, due.rows, DUE.schema)
    notice(f"{len(due.rows)} logs are due; nothing was changed")
    notice("groups that may lose some of the records that they have not read:")
    show(spark, due.losses, LOSSES)
    trouble(due.missed, 0)


def show_result(spark: SparkSession, done: Summary, answer: Path | None) -> None:
    if answered(answer, asdict(done)):
        return
    show(spark, done.rows, DONE.schema)
    if done.objects_left:
        notice(f"{done.objects_left} replaced objects could not be deleted; the job orphans finds them")
    if done.uncleanable:
        notice(f"{done.uncleanable} of the logs that were due could not be compacted")
        sys.exit(1)


if __name__ == "__main__":
    run(main)

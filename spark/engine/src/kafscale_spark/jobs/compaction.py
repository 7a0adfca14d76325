"""Compaction: `spark-submit compaction.py`. In logs that are due the last record of each key stays.

May be killed anywhere and run again, also beside upkeep: a piece is published by one compare-and-swap, or not at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafscale.lake.compaction.report import DONE, DUE, Summary
from pyspark.sql import SparkSession

from kafscale_spark.clusters import settings_of
from kafscale_spark.compaction import compact, plan
from kafscale_spark.jobs.program import add_grace, add_scope, arguments, ended, notice, positive, show
from kafscale_spark.options import Request
from kafscale_spark.session import for_job


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    add_scope(parser)
    add_grace(parser)
    parser.add_argument("--io-bytes-per-s", type=positive, help="read and written by all tasks together")
    args = parser.parse_args(argv)
    settings = settings_of(Request())
    spark = for_job("kafscale compaction")
    try:
        if args.dry_run:
            tell_plan(spark, plan(settings, args.topic), args.answer)
        else:
            context = spark.sparkContext
            tell(
                spark, compact(context, settings, args.topic, args.io_bytes_per_s, args.grace_s), args.answer
            )
    finally:
        spark.stop()


def tell_plan(spark: SparkSession, rows: list[dict[str, Any]], answer: Path | None) -> None:
    if answer is not None:
        answer.write_text(json.dumps(rows))
        return
    show(spark.createDataFrame(pa.Table.from_pylist(rows, DUE)))
    notice(f"{len(rows)} logs are due; nothing was changed")


def tell(spark: SparkSession, done: Summary, answer: Path | None) -> None:
    if answer is not None:
        answer.write_text(json.dumps(asdict(done)))
        return
    show(spark.createDataFrame(pa.Table.from_pylist(done.rows, DONE)))
    if done.objects_left:
        notice(f"{done.objects_left} replaced objects could not be deleted; the job orphans finds them")
    if done.uncleanable:
        notice(f"{done.uncleanable} of the logs that were due could not be compacted")
        sys.exit(1)


if __name__ == "__main__":
    ended(main)

"""Topics as Parquet: `spark-submit export.py orders --to DIR`. A second run writes the new records.

Tasks read and write without the JVM, because rows that pass through the JVM cost five times as much. All executors must
share the folder. The driver publishes the files in offset order, so that published files have no gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from kafscale.lake.catalog import Log
from kafscale.lake.export.run import Done, locked, remember

from kafscale_spark.clusters import opened, settings_of
from kafscale_spark.jobs.program import answered, arguments, job_session, notice, run
from kafscale_spark.options import Request, Topics, parse
from kafscale_spark.parquet import File, done, due, publish, staging, write_split
from kafscale_spark.spans import read_logs
from kafscale_spark.splits import Split, split


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--to", type=Path, required=True, help="a new folder, or one of an earlier export")
    parser.add_argument("--isolation", default="read_committed")
    args = parser.parse_args(argv)
    request = parse({"isolation": args.isolation})
    found = export(replace(request, topics=Topics(names=frozenset(args.topics))), args.to)
    notice(f"{sum(each.rows for each in found):,} records in {sum(each.files for each in found):,} new files")
    answered(args.answer, [asdict(each) for each in found])


def export(request: Request, target: Path) -> list[Done]:
    """Raises BadOption, ExportRefused, EtcdError, StoreError, OSError, and Spark's error for a failed task."""
    settings = settings_of(request)
    logs = asyncio.run(read(request))
    with locked(target), staging(target) as folder:
        remember(target, logs, None)
        spans = due(target, logs)
        splits = split([span for span in spans if span.first < span.end], None, request.target_bytes)
        files = in_tasks(splits, partial(write_split, settings, folder)) if splits else []
        publish(folder, target, files)
    return done(spans, files)


def in_tasks(splits: Sequence[Split], write: Callable[[Split], list[File]]) -> list[File]:
    with job_session("export", large=True) as spark:
        return spark.sparkContext.parallelize(splits, len(splits)).flatMap(write).collect()


async def read(request: Request) -> list[Log]:
    async with opened(settings_of(request)) as lake:
        return await read_logs(lake, request)


if __name__ == "__main__":
    run(main)

"""Orphans: `spark-submit orphans.py`. What no commit names and none ever will is deleted; `--dry-run` shows it.

May be killed anywhere and run again, also beside upkeep: a fence in etcd says what nobody will name any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from kafscale.lake.retention.summary import ORPHANS, OrphanSummary

from kafscale_spark.clusters import settings_of
from kafscale_spark.jobs.program import add_grace, add_scope, arguments, ended, notice, show, trouble
from kafscale_spark.options import Request
from kafscale_spark.retention import Job
from kafscale_spark.session import for_job


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    add_scope(parser)
    add_grace(parser)
    args = parser.parse_args(argv)
    job = Job(spark=for_job("kafscale orphans"), settings=settings_of(Request()), topics=args.topic)
    try:
        tell(job, job.collect(args.grace_s, dry=args.dry_run), args.answer, dry=args.dry_run)
    finally:
        job.spark.stop()


def tell(job: Job, found: OrphanSummary, answer: Path | None, *, dry: bool) -> None:
    if answer is not None:
        answer.write_text(json.dumps(asdict(found)))
        return
    show(job.spark.createDataFrame(pa.Table.from_pylist(found.orphans, ORPHANS)))
    done = "nothing was changed" if dry else "deleted"
    notice(f"{found.count} orphans of {found.partitions} partitions, {found.bytes} bytes: {done}")
    if found.count > len(found.orphans):
        notice(f"{len(found.orphans)} of them are listed")
    notice(f"{found.left} objects at or above their log's end, {found.strange} of unknown names: left")
    trouble(found.missed, found.failed)


if __name__ == "__main__":
    ended(main)

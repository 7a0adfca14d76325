"""Orphans: `spark-submit orphans.py`. Deletes objects that no commit names or ever will; `--dry-run` lists them.

May be killed at any point and run again, also while upkeep runs: a fence in etcd decides what is an orphan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kafscale.lake.retention.report import ORPHANS, OrphanSummary

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
    args = parser.parse_args(argv)
    with job_session("orphans") as spark:
        job = Job(spark=spark, settings=settings_of(Request()), topics=args.topic)
        show_result(job, job.collect(args.grace_s, dry=args.dry_run), args.answer, dry=args.dry_run)


def show_result(job: Job, found: OrphanSummary, answer: Path | None, *, dry: bool) -> None:
    if answered(answer, asdict(found)):
        return
    show(job.spark, found.orphans, ORPHANS)
    done = "nothing was changed" if dry else "deleted"
    notice(f"{found.count} orphans of {found.partitions} partitions, {found.bytes} bytes: {done}")
    if found.count > len(found.orphans):
        notice(f"{len(found.orphans)} of them are listed")
    notice(f"{found.left} objects at or above their log's end, {found.strange} of unknown names: left")
    trouble(found.missed, found.failed)


if __name__ == "__main__":
    run(main)

"""Retention: `spark-submit retention.py`. What has expired by its topic's settings goes; `--dry-run` shows the plan.

May be killed anywhere and run again, also beside upkeep: log starts move by compare-and-swap first, deletes come after.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from kafscale.lake.retention.apply import Report, wall_ms
from kafscale.lake.retention.plan import OWN, Limits
from kafscale.lake.retention.planned import LOSSES, Planned
from kafscale.lake.retention.summary import report_to_json

from kafscale_spark.clusters import settings_of
from kafscale_spark.jobs.program import add_grace, add_scope, arguments, ended, notice, show, trouble
from kafscale_spark.options import Request
from kafscale_spark.retention import Job, plan_frame
from kafscale_spark.session import for_job


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments().parse_args(argv)
    limits = Limits(retention_ms=args.retention_ms, retention_bytes=args.retention_bytes)
    job = Job(spark=for_job("kafscale retention"), settings=settings_of(Request()), topics=args.topic)
    try:
        if args.dry_run or limits != OWN:
            tell_plan(job, job.plan(wall_ms(), limits), limits, args.answer)
        else:
            tell(job.retain(wall_ms(), args.grace_s), args.answer)
    finally:
        job.spark.stop()


def _arguments() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    add_scope(parser)
    add_grace(parser)
    parser.add_argument(
        "--retention-ms", type=int, help="what if it were this for every topic? -1: unlimited"
    )
    parser.add_argument("--retention-bytes", type=int, help="the same for retention.bytes")
    return parser


def tell_plan(job: Job, planned: Planned, limits: Limits, answer: Path | None) -> None:
    if answer is not None:
        answer.write_text(json.dumps(asdict(planned)))
        return
    show(plan_frame(job.spark, planned.rows))
    notice(f"{len(planned.rows)} segments of {planned.logs} logs, {planned.bytes} bytes; nothing was changed")
    if limits != OWN:
        notice(f"that is {planned.bytes - planned.bytes_own} bytes more than now; groups would lose:")
        show(job.spark.createDataFrame(pa.Table.from_pylist(planned.losses, LOSSES)))


def tell(done: Report, answer: Path | None) -> None:
    if answer is not None:
        answer.write_text(json.dumps(report_to_json(done)))
        return
    notice(
        f"{done.moved} of {done.logs} logs start later; {done.segments} segments of {done.bytes} bytes deleted"
    )
    trouble(done.missed, done.left)


if __name__ == "__main__":
    ended(main)

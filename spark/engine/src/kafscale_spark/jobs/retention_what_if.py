"""What if: `spark-submit retention_what_if.py --retention-ms 86400000`. Shows what other limits would delete.

Changes nothing, with any arguments. `retention.py` deletes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.lake.retention.plan import OWN, Limits
from kafscale.storage.system import wall_ms

from kafscale_spark.clusters import settings_of
from kafscale_spark.jobs.program import add_topics, arguments, job_session, notice, run
from kafscale_spark.jobs.retention import show_plan
from kafscale_spark.options import Request
from kafscale_spark.retention import Job


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    add_topics(parser)
    parser.add_argument("--retention-ms", type=int, help="retention.ms of every topic; -1: unlimited")
    parser.add_argument("--retention-bytes", type=int, help="the same for retention.bytes")
    args = parser.parse_args(argv)
    limits = Limits(retention_ms=args.retention_ms, retention_bytes=args.retention_bytes)
    if limits == OWN:
        parser.error("give --retention-ms or --retention-bytes")
    with job_session("retention what-if") as spark:
        job = Job(spark=spark, settings=settings_of(Request()), topics=args.topic)
        planned = job.plan(wall_ms(), limits)
        show_plan(spark, planned, args.answer)
        notice(f"that is {planned.bytes - planned.bytes_own} bytes more than now")


if __name__ == "__main__":
    run(main)

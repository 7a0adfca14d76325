"""`kafscale spark compact`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.options import StoreKind
from kafscale.cli.spark.durations import seconds
from kafscale.cli.spark.progress import progressing
from kafscale.cli.spark.retention import DryRunOption, GraceOption, TopicOption
from kafscale.cli.spark.running import on_lake
from kafscale.cli.terminal import (
    DataDirOption,
    NamespaceOption,
    Output,
    OutputOption,
    StoreOption,
    fail,
    notice,
    show_rows,
)

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.compaction.plan import Candidate
    from kafscale.lake.compaction.report import Outcome, Report, Tally

PLAN_COLUMNS: Final = (
    "topic",
    "partition",
    "reason",
    "dirty_ratio",
    "delay_ms",
    "clean_segments",
    "clean_bytes",
    "dirty_segments",
    "dirty_bytes",
)
DONE_COLUMNS: Final = (
    "topic",
    "partition",
    "reason",
    "dirty_ratio",
    "segments",
    "segments_after",
    "records",
    "records_after",
    "bytes",
    "bytes_after",
    "took_ms",
    "trouble",
)


def compact(
    dry_run: DryRunOption = False,
    topic: TopicOption = None,
    io_bytes_per_s: Annotated[
        int | None, typer.Option(min=1, help="Bytes read and written per second; not given: no bound.")
    ] = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Keep the last record of each key, in topics with cleanup.policy=compact that are due; the dirtiest log first."""
    if dry_run:
        rows = on_lake(partial(_plan, topic), data_dir, namespace, store)
        show_rows(PLAN_COLUMNS, rows, output)
        notice(f"{len(rows)} logs are due; nothing was changed")
        return
    work = partial(_compact, topic, io_bytes_per_s, seconds(grace))
    report = on_lake(work, data_dir, namespace, store)
    show_rows(DONE_COLUMNS, [_done_row(each) for each in report.outcomes], output)
    if report.objects_left:
        notice(
            f"{report.objects_left} replaced objects could not be deleted; `kafscale spark orphans` finds them"
        )
    if report.uncleanable:
        raise fail(f"{len(report.uncleanable)} of the logs that were due could not be compacted")


async def _plan(names: list[str] | None, lake: Lake) -> list[dict[str, Any]]:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.compaction.plan import in_turn, survey
    from kafscale.lake.retention.apply import wall_ms

    return [_due_row(each) for each in in_turn(survey(await read_lake(lake, names), wall_ms()))]


async def _compact(names: list[str] | None, io_bytes_per_s: int | None, grace_s: float, lake: Lake) -> Report:
    from kafscale.lake.compaction.run import Bounds, Round

    with progressing() as progress:

        def tell(candidate: Candidate, tally: Tally) -> None:
            place = f"{candidate.log.topic.name}/{candidate.log.partition}"
            progress(
                f"compacting {place}, bytes",
                tally.before.bytes,
                candidate.clean_bytes + candidate.dirty_bytes,
            )

        return await Round(lake, Bounds(io_bytes_per_s=io_bytes_per_s, grace_s=grace_s), tell).run(names)


def _due_row(candidate: Candidate) -> dict[str, Any]:
    return {
        "topic": candidate.log.topic.name,
        "partition": candidate.log.partition,
        "reason": candidate.reason,
        "dirty_ratio": round(candidate.ratio, 3),
        "delay_ms": candidate.delay_ms,
        "clean_segments": len(candidate.clean),
        "clean_bytes": candidate.clean_bytes,
        "dirty_segments": len(candidate.dirty),
        "dirty_bytes": candidate.dirty_bytes,
    }


def _done_row(outcome: Outcome) -> dict[str, Any]:
    before, after = outcome.tally.before, outcome.tally.after
    return {
        "topic": outcome.candidate.log.topic.name,
        "partition": outcome.candidate.log.partition,
        "reason": outcome.candidate.reason,
        "dirty_ratio": round(outcome.candidate.ratio, 3),
        "segments": before.segments,
        "segments_after": after.segments,
        "records": before.records,
        "records_after": after.records,
        "bytes": before.bytes,
        "bytes_after": after.bytes,
        "took_ms": outcome.took_ms,
        "trouble": None if outcome.trouble is None else str(outcome.trouble) or repr(outcome.trouble),
    }

"""`kafscale spark retention`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.options import StoreKind, Target
from kafscale.cli.spark.engine import Engine, EngineOption, run_job
from kafscale.cli.spark.options import DryRunOption, GraceOption, TopicOption, job_arguments, seconds
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    notice,
    progressing,
    show_rows,
)

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.retention.apply import Report
    from kafscale.lake.retention.plan import Limits
    from kafscale.lake.retention.planned import Planned

PLAN_COLUMNS: Final = ("topic", "partition", "segment", "rule", "age_ms", "bytes")
PARTITION_COLUMNS: Final = ("topic", "partition", "segments", "bytes", "start", "start_after")
LOSS_COLUMNS: Final = ("group", "topic", "partition", "committed", "start", "records")


class By(StrEnum):
    SEGMENT = "segment"
    PARTITION = "partition"


def retention(
    dry_run: DryRunOption = False,
    retention_ms: Annotated[
        int | None,
        typer.Option(help="Plan with this value for every topic; change nothing. -1: no limit."),
    ] = None,
    retention_bytes: Annotated[int | None, typer.Option(help="The same for retention.bytes.")] = None,
    topic: TopicOption = None,
    by: Annotated[By, typer.Option(help="One row per segment or per partition.")] = By.SEGMENT,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Delete expired records by the settings of their topics; or show the plan, with these or other settings."""
    from kafscale.lake.retention.plan import Limits
    from kafscale.lake.retention.planned import Planned
    from kafscale.lake.retention.summary import report_from_json

    target = Target(data_dir, namespace, store)
    limits = Limits(retention_ms=retention_ms, retention_bytes=retention_bytes)
    what_if = limits != Limits()
    answer = None
    if engine is Engine.SPARK:
        words = job_arguments(topic, grace, dry_run=dry_run) + _words(limits)
        answer = json.loads(run_job("retention", words, target))
    if dry_run or what_if:
        planned = Planned(**answer) if answer else on_lake(partial(_plan, topic, limits), target)
        _show(planned, by, output, what_if=what_if)
    else:
        done = report_from_json(answer) if answer else on_lake(partial(_apply, topic, seconds(grace)), target)
        _show_done(done, output)


def _words(limits: Limits) -> list[str]:
    """The same limits for the job of Spark."""
    given = {"--retention-ms": limits.retention_ms, "--retention-bytes": limits.retention_bytes}
    return [f"{option}={value}" for option, value in given.items() if value is not None]


async def _apply(topics: list[str] | None, grace_s: float, lake: Lake) -> Report:
    from kafscale.lake.retention.apply import Retention

    with progressing() as progress:
        return await Retention(lake, grace_s=grace_s, progress=progress).run(topics)


async def _plan(topics: list[str] | None, limits: Limits, lake: Lake) -> Planned:
    from kafscale.lake.retention.apply import wall_ms
    from kafscale.lake.retention.planned import plan_lake

    return await plan_lake(lake, topics, wall_ms(), limits)


def _show_done(done: Report, output: Output) -> None:
    from kafscale.lake.retention.deletes import Fate

    row = {"logs": done.logs, "moved": done.moved, "segments": done.segments, "bytes": done.bytes}
    row |= {"objects_" + fate.value.replace(" ", "_"): done.fates[fate] for fate in Fate}
    show_rows(tuple(row), [row], output)
    for place, why in done.missed.items():
        notice(f"{place} was skipped: {why}")
    if done.missed:
        raise fail(f"{len(done.missed)} logs were skipped")
    if done.left:
        raise fail(f"{done.left} objects could not be deleted; the next run tries again")


def _show(planned: Planned, by: By, output: Output, *, what_if: bool) -> None:
    found, saved = planned.losses, planned.bytes - planned.bytes_own
    match by:
        case By.SEGMENT:
            columns, rows = PLAN_COLUMNS, planned.rows
        case By.PARTITION:
            columns, rows = PARTITION_COLUMNS, planned.partitions
    what = f"{len(planned.rows):,} segments of {planned.logs:,} logs, {planned.bytes:,} bytes"
    if not what_if:
        show_rows(columns, rows, output)
        notice(f"{what}; nothing was changed")
        return
    if output is Output.JSON:
        answer = {"plan": rows, "bytes": planned.bytes, "bytes_saved": saved, "losses": found}
        typer.echo(json.dumps(answer, indent=1))
        return
    show_rows(columns, rows, output)
    notice(f"{what}: {abs(saved):,} {'less' if saved < 0 else 'more'} than now; nothing was changed")
    notice(loss_sentence(found))
    if found and output is Output.TABLE:
        show_rows(LOSS_COLUMNS, found, output)


def loss_sentence(losses: list[dict[str, Any]]) -> str:
    if not losses:
        return "no group would lose records that it has not read"
    groups = {loss["group"] for loss in losses}
    records = sum(loss["records"] for loss in losses)
    return f"{', '.join(sorted(groups))} would lose {records:,} records, not read yet:"

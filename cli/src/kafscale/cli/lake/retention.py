"""`kafscale retention`: one command shows what other limits would save and cost, another one deletes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.consent import DryRunOption, Way, YesOption, agreed, chosen_way
from kafscale.cli.lake.engine import Engine, EngineOption, job_arguments, run_job
from kafscale.cli.options import GraceOption, TopicOption, seconds
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    fail_usage,
    notice,
    progressing,
    show_rows,
)
from kafscale.operations.consent import ChangePlan
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.retention.apply import Report
    from kafscale.lake.retention.plan import Limits
    from kafscale.lake.retention.report import Planned

PLAN_COLUMNS: Final = ("topic", "partition", "segment", "rule", "age_ms", "bytes")
PARTITION_COLUMNS: Final = ("topic", "partition", "segments", "bytes", "start", "start_after")

app = typer.Typer(
    name="retention",
    help="Delete expired records at once, or show what other limits would save and cost.",
    no_args_is_help=True,
)


class By(StrEnum):
    SEGMENT = "segment"
    PARTITION = "partition"


ByOption = Annotated[By, typer.Option(help="One row per segment or per partition.")]


@app.command("what-if")
def what_if(
    retention_ms: Annotated[
        int | None, typer.Option(help="retention.ms of every topic. -1: no limit. Default: the topic's.")
    ] = None,
    retention_bytes: Annotated[int | None, typer.Option(help="The same for retention.bytes.")] = None,
    topic: TopicOption = None,
    by: ByOption = By.PARTITION,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Show what other limits would delete, save and cost. Changes nothing, with any options.

    Example: kafscale retention what-if --retention-ms 86400000
    """
    from kafscale.lake.retention.plan import Limits

    limits = Limits(retention_ms=retention_ms, retention_bytes=retention_bytes)
    if limits == Limits():
        raise fail_usage(
            "give --retention-ms or --retention-bytes; "
            "`kafscale retention apply --dry-run` shows the plan with the settings of the topics"
        )
    planned = _planned(topic, limits, Target(data_dir, namespace, store), engine)
    saved = planned.bytes - planned.bytes_own
    than_now = f": {abs(saved):,} {'less' if saved < 0 else 'more'} than now"
    agreed(Way.SHOW, _plan_of(planned, by, than_now), output)
    _check(planned.missed)


@app.command("apply")
def apply(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topic: TopicOption = None,
    by: ByOption = By.PARTITION,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Delete records that have expired by the settings of their topics, as upkeep does every hour.

    Example: kafscale retention apply --dry-run

    No log starts later than was shown. Segments that expire meanwhile stay until the next run.
    """
    from kafscale.lake.retention.plan import OWN

    way, grace_s = chosen_way(dry_run=dry_run, yes=yes), seconds(grace)
    target = Target(data_dir, namespace, store)
    planned = _planned(topic, OWN, target, engine)
    if not agreed(way, _plan_of(planned, by), output):
        _check(planned.missed)
        return
    match engine:
        case Engine.LOCAL:
            done = on_lake(partial(_apply, planned, topic, grace_s), target)
        case Engine.SPARK:
            done = _apply_by_spark(planned, job_arguments(topic, grace, dry_run=False), target)
    _show_done(done, output)


def _planned(topics: list[str] | None, limits: Limits, target: Target, engine: Engine) -> Planned:
    from kafscale.lake.retention.plan import OWN
    from kafscale.lake.retention.report import Planned

    if engine is Engine.LOCAL:
        return on_lake(partial(_plan, topics, limits), target)
    words = [f"--topic={name}" for name in topics or ()]
    if limits == OWN:
        answer = run_job("retention", [*words, "--dry-run"], target)
    else:
        given = {"--retention-ms": limits.retention_ms, "--retention-bytes": limits.retention_bytes}
        words += [f"{option}={value}" for option, value in given.items() if value is not None]
        answer = run_job("retention_what_if", words, target)
    return Planned(**json.loads(answer))


async def _plan(topics: list[str] | None, limits: Limits, lake: Lake) -> Planned:
    from kafscale.lake.catalog import check_topics
    from kafscale.lake.retention.report import plan_lake
    from kafscale.storage.system import wall_ms

    await check_topics(lake, topics)
    return await plan_lake(lake, topics, wall_ms(), limits)


async def _apply(planned: Planned, topics: list[str] | None, grace_s: float, lake: Lake) -> Report:
    from kafscale.lake.retention.apply import Retention

    with progressing() as progress:
        run = Retention(lake, grace_s=grace_s, progress=progress, starts_max=planned.starts)
        return await run.run(topics)


def _apply_by_spark(planned: Planned, words: list[str], target: Target) -> Report:
    from kafscale.lake.retention.report import report_from_json

    with NamedTemporaryFile("w", prefix="kafscale-", suffix=".json") as starts:
        json.dump([[*place, start] for place, start in planned.starts.items()], starts)
        starts.flush()
        answer = run_job("retention", [*words, f"--starts-max={starts.name}"], target)
    return report_from_json(json.loads(answer))


def _plan_of(planned: Planned, by: By, than_now: str = "") -> ChangePlan:
    match by:
        case By.SEGMENT:
            columns, rows = PLAN_COLUMNS, planned.rows
        case By.PARTITION:
            columns, rows = PARTITION_COLUMNS, planned.partitions
    return ChangePlan(
        what=f"{len(planned.rows):,} segments of {planned.logs:,} logs, {planned.bytes:,} bytes{than_now}",
        question="Delete these records?",
        columns=columns,
        rows=rows,
        losses=planned.losses,
        more={"bytes": planned.bytes, "bytes_saved": planned.bytes - planned.bytes_own},
    )


def _show_done(done: Report, output: Output) -> None:
    from kafscale.lake.retention.deletes import Fate

    row = {"logs": done.logs, "moved": done.moved, "segments": done.segments, "bytes": done.bytes}
    row |= {"objects_" + fate.value.replace(" ", "_"): done.fates[fate] for fate in Fate}
    show_rows(tuple(row), [row], output)
    _check(done.missed)
    if done.left:
        raise fail(f"{done.left} objects could not be deleted; the next run tries again")


def _check(missed: Mapping[str, str]) -> None:
    for place, why in missed.items():
        notice(f"{place} was skipped: {why}")
    if missed:
        raise fail(f"{len(missed)} logs were skipped")

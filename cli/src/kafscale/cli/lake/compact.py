"""`kafscale compact`."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.lake.engine import Engine, EngineOption, job_arguments, run_job
from kafscale.cli.options import GraceOption, TopicOption, seconds
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    notice,
    progressing,
    show_rows,
)
from kafscale.operations.consent import ChangePlan
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.compaction.plan import Candidate
    from kafscale.lake.compaction.report import DuePlan, Summary, Tally


def compact(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topic: TopicOption = None,
    io_bytes_per_s: Annotated[
        int | None, typer.Option(min=1, help="Limit of bytes read and written per second. Default: no limit.")
    ] = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Compact topics with cleanup.policy=compact that are due; the dirtiest log first.

    Example: kafscale compact --dry-run
    """
    from kafscale.lake.compaction.report import DuePlan, Summary

    way, grace_s = chosen_way(dry_run=dry_run, yes=yes), seconds(grace)
    target = Target(data_dir, namespace, store)
    limit = [f"--io-bytes-per-s={io_bytes_per_s}"] * (io_bytes_per_s is not None)
    match engine:
        case Engine.LOCAL:
            due = on_lake(partial(_plan, topic), target)
        case Engine.SPARK:
            words = job_arguments(topic, grace, dry_run=True)
            due = DuePlan(**json.loads(run_job("compaction", words, target)))
    if not agreed(way, _plan_of(due), output):
        _check_missed(due)
        return
    match engine:
        case Engine.LOCAL:
            done = on_lake(partial(_compact, due, io_bytes_per_s, grace_s), target)
        case Engine.SPARK:
            words = job_arguments(topic, grace, dry_run=False) + limit
            done = Summary(**json.loads(run_job("compaction", words, target)))
    _show_done(done, output)


def _plan_of(due: DuePlan) -> ChangePlan:
    from kafscale.lake.compaction.report import DUE

    return ChangePlan(
        what=f"{len(due.rows)} logs are due; of each key in them, only the newest record stays",
        question="Compact them?",
        columns=DUE.schema.names,
        rows=due.rows,
        losses=due.losses,
        losing="may lose some of the",
    )


def _show_done(done: Summary, output: Output) -> None:
    from kafscale.lake.compaction.report import DONE

    show_rows(DONE.schema.names, done.rows, output)
    if done.objects_left:
        notice(f"{done.objects_left} replaced objects could not be deleted; `kafscale orphans` finds them")
    if done.uncleanable:
        raise fail(f"{done.uncleanable} of the logs that were due could not be compacted")


def _check_missed(due: DuePlan) -> None:
    for place, why in due.missed.items():
        notice(f"{place} cannot be read: {why}")
    if due.missed:
        raise fail(f"{len(due.missed)} logs cannot be read")


async def _plan(names: list[str] | None, lake: Lake) -> DuePlan:
    from kafscale.lake.catalog import check_topics, read_topic
    from kafscale.lake.compaction.due import due_plan
    from kafscale.storage.schema import UnreadableValue
    from kafscale.storage.system import wall_ms

    await check_topics(lake, names)
    for name in names or ():
        with suppress(UnreadableValue):
            topic = await read_topic(lake, name)
            if topic is not None and not topic.is_compacted:
                notice(f"{name} has cleanup.policy={topic.cleanup_policy}, so it is never compacted")
    return await due_plan(lake, names, wall_ms())


async def _compact(due: DuePlan, io_bytes_per_s: int | None, grace_s: float, lake: Lake) -> Summary:
    """Only the logs that were shown, and those that could not be read then, which are reported."""
    from kafscale.lake.compaction.report import summarize
    from kafscale.lake.compaction.run import Bounds, Round

    with progressing() as progress:

        def show(candidate: Candidate, tally: Tally) -> None:
            place = f"{candidate.log.topic.name}/{candidate.log.partition}"
            progress(
                f"compacting {place}, bytes",
                tally.before.bytes,
                candidate.clean.bytes + candidate.dirty.bytes,
            )

        bounds = Bounds(io_bytes_per_s=io_bytes_per_s, grace_s=grace_s)
        return summarize(await Round(lake, bounds, show).over(due.places))

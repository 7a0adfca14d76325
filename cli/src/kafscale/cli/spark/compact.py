"""`kafscale spark compact`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

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
    from kafscale.lake.compaction.plan import Candidate
    from kafscale.lake.compaction.report import Summary, Tally


def compact(
    dry_run: DryRunOption = False,
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
    """Compact topics with cleanup.policy=compact that are due; the dirtiest log first."""
    from kafscale.lake.compaction.report import DONE, DUE, Summary

    target = Target(data_dir, namespace, store)
    words = job_arguments(topic, grace, dry_run=dry_run)
    words += [f"--io-bytes-per-s={io_bytes_per_s}"] * (io_bytes_per_s is not None)
    answer = json.loads(run_job("compaction", words, target)) if engine is Engine.SPARK else None
    if dry_run:
        rows = on_lake(partial(_plan, topic), target) if answer is None else answer
        show_rows(DUE.names, rows, output)
        notice(f"{len(rows)} logs are due; nothing was changed")
        return
    if answer is None:
        done = on_lake(partial(_compact, topic, io_bytes_per_s, seconds(grace)), target)
    else:
        done = Summary(**answer)
    show_rows(DONE.names, done.rows, output)
    if done.objects_left:
        notice(
            f"{done.objects_left} replaced objects could not be deleted; `kafscale spark orphans` finds them"
        )
    if done.uncleanable:
        raise fail(f"{done.uncleanable} of the logs that were due could not be compacted")


async def _plan(names: list[str] | None, lake: Lake) -> list[dict[str, Any]]:
    from kafscale.lake.compaction.due import candidates
    from kafscale.lake.compaction.report import due_rows
    from kafscale.lake.retention.apply import wall_ms

    return due_rows(await candidates(lake, names, wall_ms()))


async def _compact(
    names: list[str] | None, io_bytes_per_s: int | None, grace_s: float, lake: Lake
) -> Summary:
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
        return summarize(await Round(lake, bounds, show).run(names))

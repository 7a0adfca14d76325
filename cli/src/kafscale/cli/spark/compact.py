"""`kafscale spark compact`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.datadir import DataDir
from kafscale.cli.options import StoreKind
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
SAY_EVERY_S: Final = 2.0


def compact(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be given again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is due, and change nothing.")] = False,
    io_bytes_per_s: Annotated[
        int | None, typer.Option(min=1, help="Bytes read and written per second; no bound if not given.")
    ] = None,
    grace_s: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="How long replaced objects stay for reads under way; 300, or 0 for a stopped cluster, if not given.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compact the logs that are due: of each key the last record stays. The dirtiest log comes first."""
    if dry_run:
        show_rows(PLAN_COLUMNS, on_lake(partial(_plan, topic), data_dir, namespace, store), output)
        return
    work = partial(_compact, topic, io_bytes_per_s, _grace(grace_s, data_dir))
    report = on_lake(work, data_dir, namespace, store)
    show_rows(DONE_COLUMNS, [_done_row(each) for each in report.outcomes], output)
    if report.objects_left:
        notice(f"{report.objects_left} replaced objects could not be deleted; they are left to the collector")
    if report.uncleanable:
        raise fail(f"{len(report.uncleanable)} of the logs that were due could not be compacted")


def _grace(grace_s: float | None, data_dir: Path | None) -> float | None:
    """Nobody reads from a cluster that is stopped."""
    if grace_s is None and data_dir is not None and DataDir(data_dir).running() is None:
        return 0.0
    return grace_s


async def _plan(names: list[str] | None, lake: Lake) -> list[dict[str, Any]]:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.compaction.plan import in_turn, survey
    from kafscale.lake.retention.apply import wall_ms

    return [_due_row(each) for each in in_turn(survey(await read_lake(lake, names), wall_ms()))]


async def _compact(
    names: list[str] | None, io_bytes_per_s: int | None, grace_s: float | None, lake: Lake
) -> Report:
    from kafscale.lake.compaction.run import Bounds, Round
    from kafscale.lake.retention.apply import GRACE_S

    bounds = Bounds(io_bytes_per_s=io_bytes_per_s, grace_s=GRACE_S if grace_s is None else grace_s)
    return await Round(lake, bounds, _teller()).run(names)


def _teller() -> Callable[[Candidate, Tally], None]:
    """Says on the error stream how far a log is, not more often than a person reads."""
    said_s = 0.0

    def tell(candidate: Candidate, tally: Tally) -> None:
        nonlocal said_s
        done = tally.before.segments == len(candidate.clean) + len(candidate.dirty)
        if time.monotonic() - said_s < SAY_EVERY_S and not done:
            return
        said_s = time.monotonic()
        total = candidate.clean_bytes + candidate.dirty_bytes
        notice(
            f"{candidate.log.topic.name}/{candidate.log.partition}: {tally.before.bytes:,} of {total:,} bytes read, "
            f"{tally.after.bytes:,} left"
        )

    return tell


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

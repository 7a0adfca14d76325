"""`kafscale spark orphans`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

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
    from kafscale.lake.retention.summary import OrphanSummary

COLUMNS: Final = ("topic", "object", "bytes")


def orphans(
    dry_run: DryRunOption = False,
    topic: TopicOption = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Delete orphaned objects: objects that crashes left and that no commit can ever name."""
    from kafscale.lake.retention.summary import OrphanSummary

    target = Target(data_dir, namespace, store)
    match engine:
        case Engine.LOCAL:
            found = on_lake(partial(_collect, topic, seconds(grace), dry_run), target)
        case Engine.SPARK:
            words = job_arguments(topic, grace, dry_run=dry_run)
            found = OrphanSummary(**json.loads(run_job("orphans", words, target)))
    _show(found, dry_run, output)


def _show(found: OrphanSummary, dry_run: bool, output: Output) -> None:
    show_rows(COLUMNS, found.orphans, output)
    done = "nothing was changed" if dry_run else "deleted"
    notice(f"{found.count} orphans of {found.partitions} partitions, {found.bytes} bytes: {done}")
    if found.count > len(found.orphans):
        notice(f"{len(found.orphans)} of them are listed")
    notice(f"{found.left} objects at or above their log's end, {found.strange} of unknown names: left")
    for place, why in found.missed.items():
        notice(f"{place} was skipped: {why}")
    if found.missed:
        raise fail(f"{len(found.missed)} logs were skipped")
    if found.failed:
        raise fail(f"{found.failed} objects could not be deleted; the next run tries again")


async def _collect(topics: list[str] | None, grace_s: float, dry: bool, lake: Lake) -> OrphanSummary:
    from kafscale.lake.retention.orphans import Orphans
    from kafscale.lake.retention.summary import summarize_orphans

    with progressing() as progress:
        return summarize_orphans(
            await Orphans(lake, grace_s=grace_s, progress=progress).collect(topics, dry=dry)
        )

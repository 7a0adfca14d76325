"""`kafscale orphans`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

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
    from kafscale.lake.retention.report import OrphanSummary

COLUMNS: Final = ("topic", "object", "bytes")


def orphans(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topic: TopicOption = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Delete orphaned objects: objects that crashes left and that no commit can ever name.

    Example: kafscale orphans --dry-run
    """
    from kafscale.lake.retention.report import OrphanSummary

    way, grace_s = chosen_way(dry_run=dry_run, yes=yes), seconds(grace)
    target = Target(data_dir, namespace, store)

    def collect(*, dry: bool) -> OrphanSummary:
        match engine:
            case Engine.LOCAL:
                return on_lake(partial(_collect, topic, grace_s, dry), target)
            case Engine.SPARK:
                words = job_arguments(topic, grace, dry_run=dry)
                return OrphanSummary(**json.loads(run_job("orphans", words, target)))

    found = collect(dry=True)
    if agreed(way, _plan_of(found), output):
        found = collect(dry=False)
        show_rows(COLUMNS, found.orphans, output)
        notice(f"deleted {_counted(found)}")
    _report(found)


def _plan_of(found: OrphanSummary) -> ChangePlan:
    return ChangePlan(
        what=_counted(found),
        question="Delete them?",
        columns=COLUMNS,
        rows=found.orphans,
    )


def _counted(found: OrphanSummary) -> str:
    return f"{found.count} orphans of {found.partitions} partitions, {found.bytes} bytes"


def _report(found: OrphanSummary) -> None:
    """What the rows do not say; and the exit code."""
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
    from kafscale.lake.catalog import check_topics
    from kafscale.lake.retention.orphans import Orphans
    from kafscale.lake.retention.report import summarize_orphans

    await check_topics(lake, topics)
    with progressing() as progress:
        return summarize_orphans(
            await Orphans(lake, grace_s=grace_s, progress=progress).collect(topics, dry=dry)
        )

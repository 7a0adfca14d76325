"""`kafscale spark orphans`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

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
    from kafscale.lake.retention.orphans import Found

COLUMNS: Final = ("topic", "object", "bytes")


def orphans(
    dry_run: DryRunOption = False,
    topic: TopicOption = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete objects that no commit names and none ever will, left behind by crashes."""
    found = on_lake(partial(_collect, topic, seconds(grace), dry_run), data_dir, namespace, store)
    rows = [{"topic": each.topic.name, "object": each.key, "bytes": each.size} for each in found.orphans]
    show_rows(COLUMNS, rows, output)
    done = "nothing was changed" if dry_run else "deleted"
    notice(f"{len(rows)} orphans of {found.partitions} partitions, {found.bytes} bytes: {done}")
    notice(f"{found.left} objects at or above their log's end, {len(found.strange)} of unknown names: left")
    for place, why in found.missed.items():
        notice(f"{place} was passed over: {why}")
    if found.missed:
        raise fail(f"{len(found.missed)} logs were passed over")
    failed = sum(count for fate, count in found.fates.items() if not fate.is_over)
    if failed:
        raise fail(f"{failed} objects could not be deleted; the next run tries again")


async def _collect(topics: list[str] | None, grace_s: float, dry: bool, lake: Lake) -> Found:
    from kafscale.lake.retention.orphans import Orphans

    with progressing() as progress:
        return await Orphans(lake, grace_s=grace_s, progress=progress).collect(topics, dry=dry)

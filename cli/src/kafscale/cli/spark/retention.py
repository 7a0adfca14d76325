"""`kafscale spark retention`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.options import StoreKind
from kafscale.cli.spark.durations import seconds
from kafscale.cli.spark.progress import progressing
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
    from kafscale.lake.catalog import Lake, Log
    from kafscale.lake.retention.plan import Doomed

PLAN_COLUMNS: Final = ("topic", "partition", "segment", "rule", "age_ms", "bytes")
LOSS_COLUMNS: Final = ("group", "topic", "partition", "committed", "start", "records")

TopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Only this one; may be repeated.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")]
GraceOption = Annotated[
    str, typer.Option(help="For reads under way, before objects are deleted: 5m, 90s, 0s.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    topics: list[str] | None
    grace_s: float
    retention_ms: int | None
    retention_bytes: int | None

    @property
    def what_if(self) -> bool:
        return self.retention_ms is not None or self.retention_bytes is not None


def retention(
    dry_run: DryRunOption = False,
    retention_ms: Annotated[
        int | None, typer.Option(help="What if it were this for every topic? Changes nothing; -1: unlimited.")
    ] = None,
    retention_bytes: Annotated[int | None, typer.Option(help="The same for retention.bytes.")] = None,
    topic: TopicOption = None,
    grace: GraceOption = "5m",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete what has expired by its topic's settings; or show the plan, under these settings or others."""
    asked = Asked(
        topics=topic, grace_s=seconds(grace), retention_ms=retention_ms, retention_bytes=retention_bytes
    )
    if dry_run or asked.what_if:
        on_lake(partial(_show, asked, output), data_dir, namespace, store)
        return
    on_lake(partial(_apply, asked, output), data_dir, namespace, store)


async def _apply(asked: Asked, output: Output, lake: Lake) -> None:
    from kafscale.lake.retention.apply import Retention
    from kafscale.lake.retention.deletes import Fate

    with progressing() as progress:
        run = Retention(lake, grace_s=asked.grace_s, progress=progress)
        done = await run.run(asked.topics)
    row = {"logs": done.logs, "moved": done.moved, "segments": done.segments, "bytes": done.bytes}
    row |= {"objects_" + fate.value.replace(" ", "_"): done.fates[fate] for fate in Fate}
    show_rows(tuple(row), [row], output)
    for place, why in done.missed.items():
        notice(f"{place} was passed over: {why}")
    if done.missed:
        raise fail(f"{len(done.missed)} logs were passed over")
    if done.left:
        raise fail(f"{done.left} objects could not be deleted; the next run tries again")


async def _show(asked: Asked, output: Output, lake: Lake) -> None:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.retention.apply import wall_ms
    from kafscale.lake.retention.plan import Limits, plan
    from kafscale.lake.retention.whatif import bytes_of

    logs, now_ms = await read_lake(lake, asked.topics), wall_ms()
    limits = Limits(retention_ms=asked.retention_ms, retention_bytes=asked.retention_bytes)
    doomed = plan(logs, now_ms, limits)
    rows, size = [_row(each) for each in doomed], bytes_of(doomed)
    if not asked.what_if:
        show_rows(PLAN_COLUMNS, rows, output)
        notice(f"{len(rows)} segments of {len(logs)} logs, {size} bytes; nothing was changed")
        return
    found = await _losses(lake, logs, doomed)
    saved = size - bytes_of(plan(logs, now_ms))
    if output is Output.JSON:
        typer.echo(json.dumps({"plan": rows, "bytes": size, "bytes_saved": saved, "losses": found}, indent=1))
        return
    show_rows(PLAN_COLUMNS, rows, output)
    notice(
        f"{len(rows)} segments of {len(logs)} logs, {size} bytes: {saved} more than now; nothing was changed"
    )
    notice(f"{len(found)} times a group would lose records that it has not read" + ":" * bool(found))
    if found and output is Output.TABLE:
        show_rows(LOSS_COLUMNS, found, output)


async def _losses(lake: Lake, logs: list[Log], doomed: list[Doomed]) -> list[dict[str, Any]]:
    from kafscale.lake.lag.commits import read_commits
    from kafscale.lake.retention.whatif import losses

    commits = await read_commits(lake, {log.topic.name: log.topic for log in logs}.values())
    return [asdict(loss) for loss in losses(logs, doomed, commits)]


def _row(doomed: Doomed) -> dict[str, Any]:
    return {
        "topic": doomed.log.topic.name,
        "partition": doomed.log.partition,
        "segment": doomed.segment.base,
        "rule": doomed.rule.value,
        "age_ms": doomed.age_ms,
        "bytes": doomed.segment.size + doomed.segment.index_size,
    }

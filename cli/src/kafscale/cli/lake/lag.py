"""`kafscale lag`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.options import StoreKind, Target
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    notice,
    show_rows,
)

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.lag.commits import Commit
    from kafscale.lake.lag.report import Facts, Report

STDOUT = "-"


class By(StrEnum):
    PARTITION = "partition"
    GROUP = "group"
    TOPIC = "topic"


def lag(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    by: Annotated[By, typer.Option(help="One row per partition, group or topic.")] = By.PARTITION,
    group: Annotated[list[str] | None, typer.Option(help="Only this group; can be repeated.")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the N rows with the most lag.")] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="A Spark query's checkpoint folder, shown as a group; can be repeated."),
    ] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write partition rows to this file.")] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Write Prometheus metrics to this file; - prints them instead of rows."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as an HTML page to this file.")] = None,
) -> None:
    """Show each group's lag, whether it keeps up, and when it loses records. Example: kafscale lag --by group"""
    from kafscale.lake.lag.checkpoints import NoCheckpoint, read_checkpoint

    try:
        read = [each for folder in checkpoint or () for each in read_checkpoint(folder)]
    except NoCheckpoint as trouble:
        raise fail(str(trouble)) from trouble
    chosen = frozenset(group) if group else None
    report, facts = on_lake(partial(_report, read, chosen), Target(data_dir, namespace, store))
    _write(report, facts, parquet, prometheus, html)
    if prometheus == STDOUT:
        return
    if output is Output.TABLE:
        from kafscale.cli.lake.lag_table import show_report

        show_report(report, by.value, top)
    else:
        rows = _rows(report, by, top)
        show_rows(list(rows[0]) if rows else [], rows, output)


async def _report(
    checkpoints: Sequence[Commit], chosen: frozenset[str] | None, lake: Lake
) -> tuple[Report, Facts]:
    from kafscale.lake.lag.report import make_report
    from kafscale.lake.lag.sampler import read_facts, with_history

    now_ms = int(time.time() * 1000)
    facts = await read_facts(lake, now_ms, checkpoints=checkpoints, chosen=chosen)
    facts = await with_history(lake, facts)
    return make_report(facts), facts


def _rows(report: Report, by: By, top: int | None) -> list[dict[str, Any]]:
    from kafscale.lake.lag.report import farthest

    match by:
        case By.PARTITION:
            return [asdict(row) for row in farthest(report.partitions, top)]
        case By.GROUP:
            return [asdict(row) for row in farthest(report.groups, top)]
        case By.TOPIC:
            return [asdict(row) for row in farthest(report.topics, top)]


def _write(
    report: Report, facts: Facts, parquet: Path | None, prometheus: str | None, html: Path | None
) -> None:
    try:
        if parquet is not None:
            from kafscale.lake.lag.tables import write_partitions

            write_partitions(report, parquet)
        if prometheus is not None:
            from kafscale.lake.lag.prometheus import exposition, gauges

            text = exposition(gauges(report, facts.logs))
            if prometheus == STDOUT:
                typer.echo(text, nl=False)
            else:
                Path(prometheus).write_text(text)
        if html is not None:
            from kafscale.lake.lag.page import render

            html.write_text(render(report), encoding="utf-8")
            notice(f"wrote {html}; open it in a browser")
    except OSError as trouble:
        raise fail(str(trouble)) from trouble

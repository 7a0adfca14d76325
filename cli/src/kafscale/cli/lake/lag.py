"""`kafscale lag`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    notice,
    said_of_file,
    show_rows,
)
from kafscale.operations.sentences import Trouble
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake
    from kafscale.lake.lag.report import Facts, Report

STDOUT = "-"


class By(StrEnum):
    PARTITION = "partition"
    GROUP = "group"
    TOPIC = "topic"


GroupsOption = Annotated[list[str] | None, typer.Option("--group", help="Only this group; can be repeated.")]
CheckpointsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint", help="A Spark query's checkpoint folder, shown as a group; can be repeated."
    ),
]
PrometheusOption = Annotated[
    str | None,
    typer.Option(help="Write Prometheus metrics to this file; - prints them instead of rows."),
]


def lag(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    by: Annotated[By, typer.Option(help="One row per partition, group or topic.")] = By.PARTITION,
    group: GroupsOption = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the N rows with the most lag.")] = None,
    checkpoint: CheckpointsOption = None,
    parquet: Annotated[Path | None, typer.Option(help="Write partition rows to this file.")] = None,
    prometheus: PrometheusOption = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as an HTML page to this file.")] = None,
) -> None:
    """Show each group's lag, whether it keeps up, and when it loses records. Example: kafscale lag --by group

    `kafscale console` shows the report live, in a browser.
    """
    target, chosen = Target(data_dir, namespace, store), frozenset(group) if group else None
    report, facts = on_lake(partial(_report, checkpoint or (), chosen), target)
    _write(report, facts, parquet, prometheus, html)
    if prometheus == STDOUT:
        return
    if output is Output.TABLE:
        from kafscale.cli.lake.lag_table import show_report

        show_report(report, by.value, top, chosen)
    else:
        rows = _rows(report, by, top)
        show_rows(_columns(by), rows, output)


async def _report(
    checkpoints: Sequence[Path], chosen: frozenset[str] | None, lake: Lake
) -> tuple[Report, Facts]:
    from kafscale.lake.lag.checkpoints import read_checkpoint
    from kafscale.lake.lag.report import make_report
    from kafscale.lake.lag.sampler import Reader

    with _sentences():
        positions = [each for folder in checkpoints for each in read_checkpoint(folder)]
        facts = await Reader(lake, chosen).facts(int(time.time() * 1000), positions)
    return make_report(facts), facts


@contextmanager
def _sentences() -> Iterator[None]:
    """Raises Trouble for wrong names."""
    from kafscale.lake.lag.checkpoints import NoCheckpoint
    from kafscale.lake.unknown import UnknownGroup

    try:
        yield
    except (NoCheckpoint, UnknownGroup) as wrong:
        raise Trouble(str(wrong)) from wrong


def _rows(report: Report, by: By, top: int | None) -> list[dict[str, Any]]:
    from kafscale.lake.lag.report import farthest

    match by:
        case By.PARTITION:
            return [asdict(row) for row in farthest(report.partitions, top)]
        case By.GROUP:
            return [asdict(row) for row in farthest(report.groups, top)]
        case By.TOPIC:
            return [asdict(row) for row in farthest(report.topics, top)]


def _columns(by: By) -> list[str]:
    from kafscale.lake.lag import report as kinds

    kind = {By.PARTITION: kinds.PartitionRow, By.GROUP: kinds.GroupRow, By.TOPIC: kinds.TopicRow}[by]
    return [each.name for each in fields(kind)]


def _replace(file: Path, text: str) -> None:
    """A collector that reads at any time finds the old file or the new one. It reads no name that ends otherwise."""
    if file.exists() and not file.is_file():  # a pipe
        file.write_text(text)
        return
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


def _write(
    report: Report, facts: Facts, parquet: Path | None, prometheus: str | None, html: Path | None
) -> None:
    try:
        if parquet is not None:
            from kafscale.lake.group_tables import write_partitions

            write_partitions(report, parquet)
            notice(f"wrote {parquet}")
        if prometheus is not None:
            from kafscale.lake.lag.prometheus import exposition, gauges

            text = exposition(gauges(report, facts.logs))
            if prometheus == STDOUT:
                typer.echo(text, nl=False)
            else:
                _replace(Path(prometheus), text)
                notice(f"wrote {prometheus}")
        if html is not None:
            from kafscale.lake.lag.page import render

            html.write_text(render(report), encoding="utf-8")
            notice(f"wrote {html}; open it in a browser")
    except OSError as trouble:
        raise fail(said_of_file(trouble, parquet or prometheus or html or "")) from trouble

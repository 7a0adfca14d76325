"""`kafscale spark export`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import StoreKind
from kafscale.cli.spark.engine import Engine, EngineOption, run_job
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
    from kafscale.lake.export.run import Done

COLUMNS: Final = ("topic", "partition", "first", "end", "files", "rows", "bytes")


class Format(StrEnum):
    PARQUET = "parquet"


def export(
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    to: Annotated[Path, typer.Option(help="A new folder, or the folder of an earlier export to continue.")],
    form: Annotated[Format, typer.Option("--format", help="File format.")] = Format.PARQUET,
    where: Annotated[
        str | None, typer.Option(help="SQL condition that selects records, over the columns of `records`.")
    ] = None,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Export topics to Parquet files, one folder per partition. If run again, it writes only new records."""
    match engine:
        case Engine.LOCAL:
            done = on_lake(partial(_export, topics, to, where), data_dir, namespace, store)
        case Engine.SPARK:
            if where is not None:
                raise fail("--where is for the local engine")
            done = _by_spark(topics, to, data_dir, namespace, store)
    show_rows(COLUMNS, [{name: getattr(each, name) for name in COLUMNS} for each in done], output)
    rows, size = sum(each.rows for each in done), sum(each.bytes for each in done)
    notice(f"{rows:,} records in {sum(each.files for each in done):,} new files of {size:,} bytes")


def _by_spark(
    topics: list[str], to: Path, data_dir: Path | None, namespace: str | None, store: StoreKind
) -> list[Done]:
    from kafscale.lake.export.run import Done

    answer = run_job("export", [*topics, "--to", str(to.absolute())], data_dir, namespace, store)
    return [Done(**row) for row in json.loads(answer)]


async def _export(topics: list[str], to: Path, where: str | None, lake: Lake) -> list[Done]:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.export.plan import ExportRefused
    from kafscale.lake.export.run import export as run
    from rich.console import Console
    from rich.progress import Progress

    logs = await read_lake(lake, topics)
    missing = sorted(set(topics) - {log.topic.name for log in logs})
    if missing:
        raise fail(f"there is no topic {', '.join(missing)}")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        offsets = progress.add_task("records", total=sum(log.stable_end - log.start for log in logs))
        try:
            return await run(
                lake, logs, to, where=where, report=lambda seen: progress.update(offsets, advance=seen)
            )
        except (ExportRefused, OSError) as trouble:
            raise fail(str(trouble)) from trouble

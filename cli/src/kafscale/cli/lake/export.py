"""`kafscale export`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.lake.engine import Engine, EngineOption, run_job
from kafscale.cli.options import Isolation, IsolationOption
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    fail_usage,
    notice,
    progressing,
    said_of_file,
    show_rows,
)
from kafscale.operations.target import StoreKind, Target

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
    isolation: IsolationOption = Isolation.COMMITTED,
) -> None:
    """Export topics to Parquet files, one folder per partition; again, only the new records."""
    from kafscale.lake.export.run import Done

    target = Target(data_dir, namespace, store)
    match engine:
        case Engine.LOCAL:
            done = on_lake(partial(_export, topics, to, where, isolation), target)
        case Engine.SPARK:
            if where is not None:
                raise fail_usage("--where is for the local engine")
            job = [*topics, "--to", str(to.absolute()), "--isolation", isolation]
            answer = run_job("export", job, target)
            done = [Done(**row) for row in json.loads(answer)]
    show_rows(COLUMNS, [{name: getattr(each, name) for name in COLUMNS} for each in done], output)
    rows, size = sum(each.rows for each in done), sum(each.bytes for each in done)
    notice(f"{rows:,} records in {sum(each.files for each in done):,} new files of {size:,} bytes")


async def _export(
    topics: list[str], to: Path, where: str | None, isolation: Isolation, lake: Lake
) -> list[Done]:
    from kafscale.lake.catalog import check_topics, read_lake, uncommitted
    from kafscale.lake.export.plan import ExportRefused
    from kafscale.lake.export.run import export as run

    await check_topics(lake, topics)
    logs = await read_lake(lake, topics)
    logs = logs if isolation is Isolation.COMMITTED else uncommitted(logs)
    total, done = sum(log.stable_end - log.start for log in logs), 0
    with progressing() as progress:

        def report(seen: int) -> None:
            nonlocal done
            done += seen
            progress("records", done, total)

        try:
            return await run(lake, logs, to, where=where, report=report)
        except ExportRefused as refused:
            raise fail(str(refused)) from refused
        except OSError as trouble:
            raise fail(said_of_file(trouble, to)) from trouble

"""`kafscale spark sql`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

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
    show_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from kafscale.lake.catalog import Lake


def sql(
    text: Annotated[
        str | None,
        typer.Argument(
            help="One query over records, batches, segments, partitions, topics, groups, commits, lag."
        ),
    ] = None,
    file: Annotated[
        typer.FileText | None,
        typer.Option("--file", "-f", help="Where the query stands instead; - is standard input."),
    ] = None,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
) -> None:
    """Ask topics a question in SQL, of a cluster that runs or one that is stopped."""
    if (text is None) == (file is None):
        raise fail("give one query: as an argument, or with --file")
    query = text or (file.read() if file else "")
    match engine:
        case Engine.LOCAL:
            found = on_lake(partial(_query, query), data_dir, namespace, store)
        case Engine.SPARK:
            found = _by_spark(query, data_dir, namespace, store)
    show_rows(found.column_names, found.to_pylist(), output)


def _by_spark(query: str, data_dir: Path | None, namespace: str, store: StoreKind) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_file(run_job("sql", ["--", query], data_dir, namespace, store)).read_all()


async def _query(text: str, lake: Lake) -> pa.Table:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.sql import query

    return await query(lake, await read_lake(lake), text)

"""`kafscale sql`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.lake.engine import Engine, EngineOption, run_job
from kafscale.cli.options import Isolation, IsolationOption
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_lake
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    Rows,
    fail_usage,
    notice,
    progressing,
    rows_of,
    show_rows,
)
from kafscale.operations.sentences import Progress
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from kafscale.lake.catalog import Lake

TABLE_ROWS_MAX: Final = 1_000


def sql(
    text: Annotated[
        str | None,
        typer.Argument(
            help="One query over records, batches, segments, partitions, topics, groups, commits, lag."
        ),
    ] = None,
    file: Annotated[
        typer.FileText | None,
        typer.Option("--file", "-f", help="Read the query from this file; - is standard input."),
    ] = None,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    engine: EngineOption = Engine.LOCAL,
    isolation: IsolationOption = Isolation.COMMITTED,
) -> None:
    """Query topics with SQL, on a running or a stopped cluster."""
    if (text is None) == (file is None):
        raise fail_usage("exactly one query is needed, as an argument or with --file")
    query = text or (file.read() if file else "")
    target = Target(data_dir, namespace, store)
    match engine:
        case Engine.LOCAL:
            on_lake(partial(_query, query, output, isolation), target)
        case Engine.SPARK:
            import pyarrow as pa

            found = pa.ipc.open_file(
                run_job("sql", ["--isolation", isolation, "--", query], target)
            ).read_all()
            show_rows(found.column_names, _dicts(found), output)


async def _query(text: str, output: Output, isolation: Isolation, lake: Lake) -> None:
    """Prints rows as they arrive, so a long answer is never in memory as a whole."""
    from kafscale.lake.catalog import read_lake, uncommitted
    from kafscale.lake.sql import stream

    with progressing() as show:
        logs = await read_lake(lake)
        logs = logs if isolation is Isolation.COMMITTED else uncommitted(logs)
        parts = stream(lake, logs, text, _counting(show), notice)
        first = await anext(parts)  # for a sum, this reads everything
    async with aclosing(parts):
        shown = rows_of(first.schema.names, output)
        if output is Output.TABLE:
            await _table(shown, first, parts)
            return
        shown.add(_dicts(first))
        async for part in parts:
            shown.add(_dicts(part))
        shown.end()


def _dicts(part: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows. A map is an object in JSON, not a list of pairs; DuckDB's maps have each key once."""
    rows: list[dict[str, Any]] = part.to_pylist(maps_as_pydicts="lossy")
    return rows


def _counting(show: Progress) -> Callable[[int], None]:
    read = 0

    def counted(rows: int) -> None:
        nonlocal read
        read += rows
        show(f"{read:,} rows read", 0, 0)

    return counted


async def _table(shown: Rows, first: pa.RecordBatch, parts: AsyncIterator[pa.RecordBatch]) -> None:
    """At most TABLE_ROWS_MAX rows. The rest is not read."""
    left, part = TABLE_ROWS_MAX, first
    while part is not None and part.num_rows <= left:
        shown.add(_dicts(part))
        left -= part.num_rows
        part = await anext(parts, None)
    if part is not None:
        shown.add(_dicts(part.slice(0, left)))
    shown.end()
    if part is not None:
        notice(f"only the first {TABLE_ROWS_MAX:,} rows are shown; --output csv or json has all of them")

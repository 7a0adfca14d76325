"""What commands share of the terminal: common options, how a failure is said, how rows are shown."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.options import StoreKind

if TYPE_CHECKING:
    from rich.console import Console

UNFOLDED: Final = 10_000

DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="KAFSCALE_DATA_DIR", help="Where `kafscale up` keeps everything."),
]
NamespaceOption = Annotated[str, typer.Option(help="Name of the cluster within the store.")]
StoreOption = Annotated[
    StoreKind, typer.Option(help="Where the records of the data directory's cluster are, as given to up.")
]


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How rows are shown.")]


def fail(message: str) -> typer.Exit:
    """Says it in red on the error stream; raise what comes back."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(f"[red]kafscale:[/red] {message}", soft_wrap=True)
    return typer.Exit(1)


def report(line: str) -> None:
    typer.echo(line)


def notice(line: str) -> None:
    """To the error stream, so that what a program reads stays clean."""
    typer.echo(line, err=True)


def show_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], output: Output) -> None:
    match output:
        case Output.JSON:
            typer.echo(json.dumps([{name: plain(row[name]) for name in columns} for row in rows], indent=1))
        case Output.CSV:
            text = io.StringIO()
            writer = csv.writer(text)
            writer.writerow(columns)
            writer.writerows([_cell(row[name]) for name in columns] for row in rows)
            typer.echo(text.getvalue(), nl=False)
        case Output.TABLE:
            _show_table(columns, rows)


def _show_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in columns:
        numbers = bool(rows) and all(isinstance(row[name], int | float | Decimal) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    screen().print(table)


def screen() -> Console:
    """As wide as the terminal; what goes to a file or another program is not folded."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNFOLDED
    return console


def plain(value: Any) -> Any:
    """A value as JSON says it; bytes that are no text are hexadecimal, as in SQL."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "\\x" + value.hex()
        case Decimal():  # DuckDB's sums of integers among them
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _cell(value: Any) -> str:
    shown = plain(value)
    if shown is None:
        return ""
    return shown if isinstance(shown, str) else json.dumps(shown)

"""Output of the commands: rows, messages, progress, and failures with their exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer
from kafscale.operations.plain import plain
from kafscale.operations.sentences import Progress
from kafscale.runtime.redaction import harmless

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
UNFOLDED: Final = 10_000


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


class TextOutput(StrEnum):
    """For commands whose text is no table."""

    TEXT = "text"
    JSON = "json"


TextOutputOption = Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")]


FAILED_EXIT_CODE: Final = 1
USAGE_EXIT_CODE: Final = 2


def fail(message: str, code: int = FAILED_EXIT_CODE) -> typer.Exit:
    """Prints the message in red on the error stream. The caller raises the result."""
    typer.echo(f"{typer.style('kafscale:', fg=typer.colors.RED)} {message}", err=True)
    return typer.Exit(code)


def fail_usage(message: str) -> typer.Exit:
    """For an invalid command line. No request was sent."""
    return fail(message, USAGE_EXIT_CODE)


def said_of_file(trouble: OSError, path: Path | str) -> str:
    """What is wrong with a file or a folder, without the number of the error."""
    return f"{trouble.filename or path}: {trouble.strerror or trouble}"


def report(line: str) -> None:
    typer.echo(line)


def notice(line: str) -> None:
    """To the error stream, so that standard output has only rows."""
    typer.echo(line, err=True)


def on_terminal() -> bool:
    """Whether a person reads the messages and sees the output."""
    return sys.stdout.isatty() and sys.stderr.isatty()


@contextmanager
def progressing() -> Iterator[Progress]:
    """A progress bar on the error stream, if it is a terminal. It disappears at the end."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield show


def show_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], output: Output) -> None:
    shown = rows_of(columns, output)
    shown.add(rows)
    shown.end()


class Rows(Protocol):
    """Rows for standard output, in several parts."""

    def add(self, rows: Sequence[dict[str, Any]]) -> None: ...

    def end(self) -> None: ...


def rows_of(columns: Sequence[str], output: Output) -> Rows:
    match output:
        case Output.JSON:
            return _JsonRows(columns)
        case Output.CSV:
            return _CsvRows(columns)
        case Output.TABLE:
            return _TableRows(columns)


class _JsonRows:
    """A JSON list with one value per line."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._before = "[\n "

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            text = json.dumps({name: plain(row[name]) for name in self._columns}, indent=1)
            typer.echo(self._before + text.replace("\n", "\n "), nl=False)
            self._before = ",\n "

    def end(self) -> None:
        typer.echo("[]" if self._before.startswith("[") else "\n]")


class _CsvRows:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._write([columns])

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        self._write([_cell(row[name]) for name in self._columns] for row in rows)

    def end(self) -> None:
        return

    def _write(self, lines: Iterable[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([harmless(cell) for cell in line] for line in lines)
        typer.echo(text.getvalue(), nl=False)


class _TableRows:
    """A column is as wide as its widest value, so nothing is printed before the end."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: list[dict[str, Any]] = []

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows += rows

    def end(self) -> None:
        show_table(self._columns, self._rows)


def show_table(columns: Sequence[str], rows: Sequence[dict[str, Any]], *, err: bool = False) -> None:
    """`err`: on the error stream."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for name in columns:
        values = [row[name] for row in rows if row[name] is not None]
        numbers = bool(values) and all(isinstance(value, int | float | Decimal) for value in values)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(_cell(row[name]))) for name in columns))
    screen(err=err).print(table)


def record_line(line: bytes) -> bytes:
    """The record unchanged for a program; without control codes for a terminal."""
    return harmless(line.decode(errors="replace")).encode() if sys.stdout.isatty() else line


def screen(*, err: bool = False) -> Console:
    """As wide as the terminal. Output to a file or another program is not folded."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich calls this while it handles the BrokenPipeError; `lazy.quiet_at_closed_pipe` ends the command

    console = Screen(stderr=err)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNFOLDED
    return console


def _cell(value: Any) -> str:
    shown = plain(value)
    if shown is None:
        return ""
    return _no_formula(shown) if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _no_formula(text: str) -> str:
    """Clients choose names. A spreadsheet would execute a cell that begins like a formula; numbers stay as they are."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text

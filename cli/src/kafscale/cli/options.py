"""Options that several commands have, and values of options. This module imports nothing heavy."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from kafscale.cli.terminal import fail_usage
from typer.models import TyperPath

PartitionsOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="LIST", help="Only these partitions, such as 0,2,5-7."),
]
TopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; can be repeated.")]
GraceOption = Annotated[
    str, typer.Option(help="Wait for reads in progress before objects are deleted: 5m, 90s, 0s.")
]


class DataDirType(TyperPath):
    """The type of every --data-dir. `--data-dir "$UNSET"` is refused: an empty path is the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        completing = ctx is not None and ctx.resilient_parsing
        if value == "" and not completing:
            raise fail_usage("--data-dir is empty; name a folder, such as --data-dir data")
        return super().convert(value, param, ctx)


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


COMPLETE_VARIABLE: Final = "_KAFSCALE_COMPLETE"
"""A shell sets it to get the completions of a line."""


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(duration: str) -> float:
    """Of `5m`, `90s`, `1.5h`. Raises typer's BadParameter."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise typer.BadParameter(f"'{duration}': a number with one of {', '.join(_UNITS)}, as in 5m")
    return float(found[1]) * _UNITS[found[2]]


class Isolation(StrEnum):
    """What a reader sees of transactions, by the names of Kafka's clients."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


IsolationOption = Annotated[
    Isolation,
    typer.Option(help="read_uncommitted: also records of transactions that are open or were aborted."),
]

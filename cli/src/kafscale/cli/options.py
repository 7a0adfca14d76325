"""Options that several commands have, and values of options. This module imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

PartitionsOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="LIST", help="Only these partitions, such as 0,2,5-7."),
]


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


COMPLETE_VARIABLE: Final = "_KAFSCALE_COMPLETE"
"""A shell sets it to get the completions of a line."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"

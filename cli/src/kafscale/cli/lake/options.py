"""The options that several of these commands have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final

import typer

TopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; can be repeated.")]
GraceOption = Annotated[
    str, typer.Option(help="Wait for reads in progress before objects are deleted: 5m, 90s, 0s.")
]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(duration: str) -> float:
    """Of `5m`, `90s`, `1.5h`. Raises typer's BadParameter."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise typer.BadParameter(f"'{duration}': a number with one of {', '.join(_UNITS)}, as in 5m")
    return float(found[1]) * _UNITS[found[2]]


def job_arguments(topics: Iterable[str] | None, grace: str, *, dry_run: bool) -> list[str]:
    """The same options for a job of Spark."""
    words = [*(f"--topic={name}" for name in topics or ()), f"--grace-s={seconds(grace)}"]
    return [*words, "--dry-run"] if dry_run else words

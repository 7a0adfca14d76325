"""Durations as a person writes them on the command line."""

from __future__ import annotations

import re
from typing import Final

import typer

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_FORM: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(text: str) -> float:
    """`5m`, `90s`, `1.5h`; raises typer's BadParameter."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"'{text}': a number with one of {', '.join(_UNITS)}, as in 5m")
    return float(found[1]) * _UNITS[found[2]]

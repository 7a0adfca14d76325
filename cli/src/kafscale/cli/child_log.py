"""The log of a child of `kafscale up`, in words for the console. A line of a log is JSON; what a process prints when it
dies may not be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

LAST_BYTES: Final = 64 << 10
"""How much of the end of a log is read."""
WORDS_MAX: Final = 500
TROUBLE: Final = frozenset({"warning", "warn", "error", "critical", "fatal", "panic"})
"""Levels, as the services and etcd write them."""


def last_trouble(path: Path, *, unmet: bool = False) -> str | None:
    """The newest warning or error in one sentence; None if there is none. `unmet`: only of a dependency that is
    awaited."""
    for line in reversed(_last_lines(path)):
        told = _json_line(line)
        if told is not None and told.get("level") in TROUBLE and ("need" in told or not unmet):
            return _words(told)[:WORDS_MAX]
    return None


def last_words(path: Path) -> str:
    """Why the process ended, as far as its log says it, and where the log is."""
    lines = [line for line in _last_lines(path) if line.strip()]
    unformatted = next((line for line in reversed(lines) if _json_line(line) is None), None)
    if unformatted is not None and unformatted == lines[-1] and not unformatted[0].isspace():
        why: str | None = unformatted  # printed at the end, and no frame of a stack: newer than every warning
    else:
        why = last_trouble(path) or unformatted
    why = why and why.strip()
    return f"{why[:WORDS_MAX]}; its log is {path}" if why else f"its log {path} has no warning"


def grouped(troubles: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each different trouble, with the names of all that have it."""
    names: dict[str, list[str]] = {}
    for name, trouble in troubles:
        names.setdefault(trouble, []).append(name)
    for trouble, having in names.items():
        yield f"{', '.join(having)}: {trouble}"


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - LAST_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _json_line(line: str) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _words(told: dict[str, Any]) -> str:
    """Services write `event`, `why`, `do` and tracebacks, etcd `msg` and `error`."""
    raised = [line for line in str(told.get("exception", "")).splitlines() if line.strip(" |+-")]
    parts = [
        told.get("event") or told.get("msg"),
        told.get("need"),
        told.get("why") or told.get("error") or told.get("reason"),
        raised[-1].strip(" |") if raised else None,
    ]
    words = ": ".join(str(part) for part in parts if part)
    return f"{words}; {told['do']}" if told.get("do") else words

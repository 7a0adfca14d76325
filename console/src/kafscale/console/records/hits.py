"""A hit of a search, as a row of the records page, and the bounds of a search (R5)."""

from __future__ import annotations

from typing import Any, Final

from kafscale.console.decode.plain import view_of

HITS_MAX: Final = 500
TIMEOUT_S: Final = 55.0
"""Less than a question's minute, so that the last line says where to go on."""
_CHARS_MAX: Final = 2_048
"""Of a key or a value. The record's own page has all of it."""


def hit_row(
    partition: int,
    offset: int,
    timestamp_ms: int | None,
    key: bytes | None,
    value: bytes | None,
    state: str | None = None,
) -> dict[str, Any]:
    return {
        "id": f"{partition}/{offset}",
        "partition": partition,
        "offset": offset,
        "timestamp_ms": None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms,
        "state": state,
        "key": view_of(key, chars_max=_CHARS_MAX),
        "value": view_of(value, chars_max=_CHARS_MAX),
        "bytes": len(key or b"") + len(value or b""),
    }

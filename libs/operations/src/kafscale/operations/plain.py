"""Values of a query as JSON has them. Pure."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

from kafscale.operations.sentences import counted


def plain(value: Any) -> Any:
    """A value for JSON. Bytes that are not UTF-8 are hexadecimal, as in SQL; numbers that JSON has not are text."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "\\x" + value.hex()
        case Decimal():  # for example DuckDB's sums of integers
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case tuple() as interval if hasattr(interval, "nanoseconds"):
            return _interval(*interval)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Arrow's interval in DuckDB's words, to the millisecond."""
    sign, ms = "-" if nanoseconds < 0 else "", abs(nanoseconds) // 1_000_000
    seconds, ms = divmod(ms, 1000)
    time = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (
        f".{ms:03}" if ms else ""
    )
    parts = [counted(count, unit) for count, unit in ((months, "month"), (days, "day")) if count]
    return " ".join([*parts, time] if nanoseconds or not parts else parts)

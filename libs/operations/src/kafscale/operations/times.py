"""Times on the command line. Reading them is pure: the caller gives the time of now."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

WAYS: Final = "2026-01-31T08:00 (UTC if it has no zone), milliseconds since 1970, or an age such as -1h"
_AGE: Final = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    return int(time.time() * 1000)


def parse_time(text: str, now: int) -> int | None:
    """In ms since 1970, as `now`; None if the text is no time."""
    if (age := _AGE.fullmatch(text)) is not None:
        return max(now - round(float(age[1]) * _UNITS_MS[age[2]]), 0)
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000), 0)

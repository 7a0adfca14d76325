"""A place in each log, as options name it: `beginning`, `end`, an offset, `+N`, `-N`, or a time.

Reading the options is pure: the caller gives the time of now.
Law: a position becomes an offset between the first offset of a log and its end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafscale.client.admin_client import Client
    from kafscale.client.topics import TopicPart

PARTITIONS_MAX: Final = 1_000_000
_BEGINNING: Final = ("beginning", "start", "earliest")
_END: Final = ("end", "latest")
_RANGE: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
WAYS: Final = "2026-01-31T08:00 (UTC if it has no zone), milliseconds since 1970, or an age such as -1h"
_AGE: Final = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
HELP: Final = "beginning, end, N, +N (after the beginning), -N (before the end), @TIME. TIME is " + WAYS


class PositionWrong(ValueError):
    """The text is a sentence for the user."""


class Base(Enum):
    BEGINNING = auto()
    END = auto()
    ZERO = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Position:
    """`value` offsets after the base; of TIME: ms since 1970."""

    base: Base
    value: int = 0


def parse_position(text: str, now: int) -> Position:
    """`now` in ms since 1970. Raises PositionWrong."""
    if text in _BEGINNING:
        return Position(Base.BEGINNING)
    if text in _END:
        return Position(Base.END)
    sign, digits = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if digits.isascii() and digits.isdecimal():
        base = {"+": Base.BEGINNING, "-": Base.END, "": Base.ZERO}[sign]
        return Position(base, -int(digits) if sign == "-" else int(digits))
    time_ms = parse_time(text.removeprefix("@"), now)
    if time_ms is None:
        raise PositionWrong(f"'{text}' is no position; use {HELP}")
    return Position(Base.TIME, time_ms)


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


def limited(position: Position, start: int, end: int, at_time: int | None = None) -> int:
    """The offset in a log from `start` to `end`. `at_time`: the first record of the time or later, None without one."""
    match position.base:
        case Base.BEGINNING:
            found = start + position.value
        case Base.END:
            found = end + position.value
        case Base.ZERO:
            found = position.value
        case Base.TIME:
            found = end if at_time is None else at_time
    return min(max(found, start), end)


@dataclass(frozen=True, slots=True)
class Log:
    """The bounds of a partition, and the offset of a position in it."""

    start: int
    end: int
    at: int


def located(client: Client, places: Iterable[TopicPart], position: Position) -> dict[TopicPart, Log]:
    """Raises KafkaTrouble."""
    from kafscale.client.topics import EARLIEST, LATEST, NO_OFFSET, offsets_at

    wanted = list(places)
    starts, ends = offsets_at(client, wanted, EARLIEST), offsets_at(client, wanted, LATEST)
    timed = offsets_at(client, wanted, position.value) if position.base is Base.TIME else {}
    found: dict[TopicPart, Log] = {}
    for place in wanted:
        start, end = starts[place].offset, ends[place].offset
        at_time = timed[place].offset if place in timed else NO_OFFSET
        at = limited(position, start, end, None if at_time == NO_OFFSET else at_time)
        found[place] = Log(start, end, at)
    return found


def parse_partitions(words: Iterable[str]) -> frozenset[int]:
    """Of `0,2,5-7`. Raises PositionWrong."""
    found: set[int] = set()
    for word in ",".join(words).split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise PositionWrong(f"'{word}' is no list of partitions; use numbers and ranges such as 0,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > PARTITIONS_MAX:
            raise PositionWrong(f"'{word}' is no range of partitions")
        found |= set(range(first, last + 1))
    return frozenset(found)


def chosen(topic: str, numbers: Iterable[int], wanted: frozenset[int] | None) -> list[int]:
    """The wanted partitions of a topic, in order; all if `wanted` is None. Raises PositionWrong."""
    there = set(numbers)
    if wanted is None:
        return sorted(there)
    if missing := sorted(wanted - there):
        raise PositionWrong(f"topic '{topic}' has no partition {missing[0]}")
    return sorted(wanted)

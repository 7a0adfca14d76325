"""What a config's value may be: Kafka's types, how their text is read, and which range or words a key takes.

A value is text on the wire. It is read as Kafka's `ConfigDef.parseType` reads it: blanks around it do not
count, numbers are decimal, lists are parted by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII)

Check = Callable[[str], str | None]
"""Why a value is refused, as the end of a sentence; None when it may stand."""


class ConfigType(IntEnum):
    """The `config_type` of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The `config_source` of DescribeConfigs v1+."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


def items_of(value: str) -> list[str]:
    """The items of a list as it stands in a config."""
    return [item for part in value.split(",") if (item := part.strip())]


def whole_number(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        text = value.strip()
        if _WHOLE.fullmatch(text) is None:
            return f"{value!r} is not a whole number"
        return None if low <= int(text) <= high else f"{text} is not between {low} and {high}"

    return check


def fraction(value: str) -> str | None:
    text = value.strip()
    if _DECIMAL.fullmatch(text) is None:
        return f"{value!r} is not a number"
    return None if 0 <= float(text) <= 1 else f"{text} is not between 0 and 1"


def one_of(*words: str) -> Check:
    def check(value: str) -> str | None:
        return None if value in words else f"{value!r} is none of {', '.join(words)}"

    return check


def some_of(*words: str) -> Check:
    """A list of at least one of these words, none of them twice."""

    def check(value: str) -> str | None:
        items = items_of(value)
        unknown = [item for item in items if item not in words]
        if unknown:
            return f"{unknown[0]!r} is none of {', '.join(words)}"
        if not items:
            return f"it must name at least one of {', '.join(words)}"
        return f"{value!r} names something twice" if len(items) != len(set(items)) else None

    return check

"""The values of configs: Kafka's types, how their text is parsed, and checks of ranges and words.

A value is text on the wire. It is parsed as Kafka's `ConfigDef.parseType` does: blanks around it are ignored, numbers
are decimal, and commas separate the items of lists. `parsed` writes the parsed value as text again, as Kafka's
`ConfigDef.convertToString` does: this text is stored and shown. Every `Check` gets its value without blanks around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's `String.trim` removes."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII)
_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}", re.ASCII)
_BACK = re.compile(
    r"by_duration:(?i:P(?=.)(\+?[0-9]{1,9}D)?"
    r"(T(?=[+0-9])(\+?[0-9]{1,9}H)?(\+?[0-9]{1,9}M)?(\+?[0-9]{1,9}(\.[0-9]{0,9})?S)?)?)",
    re.ASCII,
)

Check = Callable[[str], str | None]
"""Why a value is refused, as the end of a sentence; None if it is valid."""


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
    GROUP = 8


def items_of(value: str) -> list[str]:
    """The items of a list as it stands in a config. An item may be empty; a blank list has none."""
    text = value.strip(BLANKS)
    return [item.strip(BLANKS) for item in text.split(",")] if text else []


def parsed(kind: ConfigType, value: str) -> str:
    """A valid value as text that has one form for each number, truth and list."""
    text = value.strip(BLANKS)
    match kind:
        case ConfigType.BOOLEAN:
            return text.lower()
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return str(int(text))
        case ConfigType.DOUBLE:
            return _java_double(float(text))
        case ConfigType.LIST:
            return ",".join(items_of(text))
        case _:
            return text


def _java_double(number: float) -> str:
    """Java writes numbers below a thousandth as 1.0E-4."""
    if not 0 < abs(number) < 1e-3:
        return repr(number)
    mantissa, _, exponent = f"{Decimal(repr(number)):E}".partition("E")
    return f"{float(mantissa)!r}E{int(exponent)}"


def whole_number(low: int, high: int) -> Check:
    def check(text: str) -> str | None:
        if _WHOLE.fullmatch(text) is None:
            return f"{text!r} is not a whole number"
        return None if low <= int(text) <= high else f"{text} is not between {low} and {high}"

    return check


def fraction(text: str) -> str | None:
    if _DECIMAL.fullmatch(text) is None:
        return f"{text!r} is not a number"
    return None if 0 <= float(text) <= 1 else f"{text} is not between 0 and 1"


def gzip_level(value: str) -> str | None:
    reason = whole_number(-1, 9)(value)
    return "0 is not a gzip level" if reason is None and int(value) == 0 else reason


def boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else f"{value!r} is neither true nor false"


def only_false(why: str) -> Check:
    def check(value: str) -> str | None:
        return boolean(value) or (None if value.lower() == "false" else why)

    return check


def replicas(value: str) -> str | None:
    """Kafka's ThrottledReplicaListValidator: `*`, or pairs of partition and broker."""
    items = items_of(value)
    if items == ["*"] or all(not item or _REPLICA.fullmatch(item) for item in items):
        return None
    return f"{value!r} must be '*' or a list as in 0:1,1:2, of partition:broker"


def reset_strategy(value: str) -> str | None:
    """Of share groups (KIP-932): a word, or a duration that is not negative, in Java's notation."""
    if value in ("earliest", "latest") or _BACK.fullmatch(value):
        return None
    return f"{value!r} must be earliest, latest or as by_duration:PT1H"


def one_of(*words: str) -> Check:
    def check(value: str) -> str | None:
        return None if value in words else f"{value!r} is not one of {', '.join(words)}"

    return check


def some_of(*words: str) -> Check:
    """A list of these words, which may be empty."""

    def check(value: str) -> str | None:
        items = items_of(value)
        unknown = [item for item in items if item not in words]
        return f"{unknown[0]!r} is not one of {', '.join(words)}" if unknown else None

    return check

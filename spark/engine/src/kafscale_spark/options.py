"""The request of a reader, from the options that Spark passes. Pure.

Options have the names of Spark's Kafka connector, so that a job moves by changing its format and its cluster. A setting
of the services, KAFSCALE_X_Y, is the option `kafscale.x_y`. Unknown options are refused, because a misspelt option
would silently change the result. The connector's own `kafka.*` are ignored, because this source uses no broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from kafscale.lake.catalog import TopicPartition

SETTING: Final = "kafscale."
IGNORED: Final = ("kafka.", "minpartitions", "groupidprefix", "fetchoffset.", "kafkaconsumer.")
EARLIEST: Final = -2
LATEST: Final = -1
TARGET_BYTES: Final = 32 << 20
MAX_DELAY_MS: Final = 15 * 60_000
UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "": 1}

T = TypeVar("T")


class BadOption(ValueError):
    """The caller's mistake, in a sentence."""


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition. EARLIEST and LATEST mean the log's start and end."""

    of: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Times:
    """The first record of each partition that is not older than this, in ms since 1970."""

    of: Mapping[TopicPartition, int] = field(default_factory=dict)
    everywhere: int | None = None


Position: TypeAlias = Edge | Offsets | Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics, and their partitions. With nothing set: all."""

    names: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: Mapping[str, frozenset[int]] | None = None

    def has(self, topic: str) -> bool:
        if self.names is not None:
            return topic in self.names
        return self.pattern is None or self.pattern.fullmatch(topic) is not None

    def has_place(self, place: TopicPartition) -> bool:
        topic, partition = place
        return self.has(topic) and (self.partitions is None or partition in self.partitions[topic])


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    table: str = "records"
    topics: Topics = Topics()
    starting: Position | None = None  # None: earliest for a batch, latest for a stream
    ending: Position = Edge.LATEST
    fail_on_data_loss: bool = True
    fail_without_match: bool = True  # a starting time after all records is an error, else the log's end
    target_bytes: int = TARGET_BYTES
    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_max_ms: int = MAX_DELAY_MS
    with_headers: bool = True
    committed_only: bool = True
    push_filters: bool = True  # must be off if spark.sql.python.filterPushdown.enabled is off
    data_dir: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def parse(options: Mapping[str, str]) -> Request:
    """Raises BadOption. Names are not case sensitive, as everywhere in Spark."""
    left = {name.lower(): value for name, value in options.items() if not name.lower().startswith(IGNORED)}
    settings = {name: left.pop(name) for name in list(left) if name.startswith(SETTING)}
    take = _Taker(left)
    request = Request(
        table=take("table", str.lower, "records"),
        topics=_topics(take),
        starting=_position(take, "starting"),
        ending=_position(take, "ending") or Edge.LATEST,
        fail_on_data_loss=take("failOnDataLoss", _flag, True),
        fail_without_match=take("startingOffsetsByTimestampStrategy", _strategy, True),
        target_bytes=take("targetBytes", _count, TARGET_BYTES),
        offsets_max=take("maxOffsetsPerTrigger", _count, None),
        offsets_min=take("minOffsetsPerTrigger", _count, None),
        delay_max_ms=take("maxTriggerDelay", _duration_ms, MAX_DELAY_MS),
        with_headers=take("includeHeaders", _flag, True),
        committed_only=take("isolation", _isolation, True),
        push_filters=take("pushFilters", _flag, True),
        data_dir=take("dataDir", str, None),
        settings={name.removeprefix(SETTING): value for name, value in settings.items()},
    )
    if left:
        raise BadOption(f"there is no option {', '.join(sorted(left))}")
    return request


class _Taker:
    """Takes options from those that are left. The error names the option that could not be parsed."""

    def __init__(self, left: dict[str, str]) -> None:
        self._left = left

    def __call__(self, name: str, read: Callable[[str], T], default: Any) -> Any:
        text = self._left.pop(name.lower(), None)
        if text is None:
            return default
        try:
            return read(text)
        except (ValueError, KeyError, TypeError, AttributeError, re.error) as wrong:
            raise BadOption(f"option {name} cannot be {text!r}: {wrong}") from wrong


def _topics(take: _Taker) -> Topics:
    found = [
        each
        for each in (
            take("subscribe", _names, None),
            take("subscribePattern", lambda text: Topics(pattern=re.compile(text)), None),
            take("assign", _assigned, None),
        )
        if each is not None
    ]
    if len(found) > 1:
        raise BadOption("subscribe, subscribePattern and assign exclude each other")
    return found[0] if found else Topics()


def _names(text: str) -> Topics:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("no topic is named")
    return Topics(names=names)


def _assigned(text: str) -> Topics:
    partitions = {str(topic): frozenset(map(int, numbers)) for topic, numbers in json.loads(text).items()}
    return Topics(names=frozenset(partitions), partitions=partitions)


def _position(take: _Taker, which: str) -> Position | None:
    """Precedence as in the connector: a time for all partitions, then times per partition, then offsets."""
    everywhere = take(f"{which}Timestamp", _time_ms, None)
    times = take(f"{which}OffsetsByTimestamp", _by_place, None)
    offsets = take(f"{which}Offsets", _edge_or_offsets, None)
    if everywhere is not None:
        return Times(everywhere=everywhere)
    return Times(of=times) if times is not None else offsets


def _edge_or_offsets(text: str) -> Position:
    if text.strip().startswith("{"):
        return Offsets(_by_place(text))
    return _one_of({edge.value: edge for edge in Edge}, text)


def _by_place(text: str) -> Mapping[TopicPartition, int]:
    """Parses the connector's format, `{"topic": {"0": 23}}`."""
    found = json.loads(text)
    return {
        (str(topic), int(partition)): int(number)
        for topic, numbers in found.items()
        for partition, number in numbers.items()
    }


def _time_ms(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("it is in ms since 1970")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("it is at least 1")
    return number


def _one_of(values: Mapping[str, T], text: str) -> T:
    found = values.get(text.strip().lower())
    if found is None:
        raise ValueError(f"it is {' or '.join(values)}")
    return found


def _flag(text: str) -> bool:
    return _one_of({"true": True, "false": False}, text)


def _isolation(text: str) -> bool:
    """Whether only committed records are read."""
    return _one_of({"read_committed": True, "read_uncommitted": False}, text)


def _strategy(text: str) -> bool:
    return _one_of({"error": True, "latest": False}, text)


def _duration_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None:
        raise ValueError("a time is a number and ms, s, m or h")
    return int(found[1]) * UNITS_MS[found[2]]

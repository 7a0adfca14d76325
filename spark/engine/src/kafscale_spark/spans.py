"""The offsets that a query reads, and whether they still exist.

A span is the part of one log that a query reads: offsets [first, end), never past the last stable offset.
Offsets below the log start were deleted. Offsets after the log's end belong to another topic of this name. Both are
lost data, which fails the query unless `failOnDataLoss` is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from kafscale.lake.catalog import Lake, Log, TopicPartition, by_place, read_lake, read_topics, uncommitted
from kafscale.lake.scan import offset_at
from kafscale.lake.unknown import UnknownTopic

from kafscale_spark.options import EARLIEST, LATEST, BadOption, Edge, Offsets, Position, Request, Times

WHAT_TO_DO = (
    "Set failOnDataLoss to false to go on with what is there; a stream may also begin with a new checkpoint"
)
Next: TypeAlias = Mapping[TopicPartition, int]
"""The first offset of each partition that has not been read."""


class DataLoss(Exception):
    """Records that the query has to read no longer exist; the message is a sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {WHAT_TO_DO}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets [first, end) of a log."""

    log: Log
    first: int
    end: int


def place_of(log: Log) -> TopicPartition:
    return log.topic.name, log.partition


def text_of(place: TopicPartition) -> str:
    return f"{place[0]}:{place[1]}"


async def read_logs(lake: Lake, request: Request) -> list[Log]:
    """The logs that the options select. Raises BadOption for a topic or a partition that does not exist."""
    topics = request.topics
    known = {topic.name: topic.partitions for topic in await read_topics(lake)}
    missing = sorted((topics.names or frozenset()) - known.keys())
    if missing:
        raise BadOption(str(UnknownTopic(missing[0])))
    for topic, numbers in (topics.partitions or {}).items():
        if any(number not in range(known[topic]) for number in numbers):
            raise BadOption(f"{topic} has {known[topic]} partitions, not {sorted(numbers)}")
    logs = await read_lake(lake, [name for name in known if topics.has(name)])
    logs = logs if request.committed_only else uncommitted(logs)
    return [log for log in logs if topics.has_place(place_of(log))]


async def starts(lake: Lake, logs: Sequence[Log], position: Position, request: Request) -> Next:
    """Where each log's span begins."""
    _check_named(position, logs)
    found = {}
    for log in logs:
        first = await _resolve(lake, log, position)
        if first is None:
            if request.fail_without_match:
                raise BadOption(
                    f"{text_of(place_of(log))} has no record as new as startingTimestamp; "
                    "startingOffsetsByTimestampStrategy may be latest"
                )
            first = log.stable_end
        found[place_of(log)] = first
    return found


async def ends(lake: Lake, logs: Sequence[Log], position: Position) -> Next:
    """Where each log's span ends. If no record is as new as the time, that is the log's end."""
    _check_named(position, logs)
    found = {}
    for log in logs:
        end = await _resolve(lake, log, position)
        found[place_of(log)] = log.stable_end if end is None else end
    return found


def spans(logs: Iterable[Log], first: Next, end: Next, request: Request) -> list[Span]:
    """The spans that are not empty. A partition without a start is new and begins at 0. Raises DataLoss."""
    known = by_place(logs)
    gone = sorted(text_of(place) for place in first.keys() | end.keys() if place not in known)
    if gone:
        _lost(request, f"{', '.join(gone)} is gone, and what was not read of it")
    found = []
    for place, log in known.items():
        if place in end:
            span = _whole(log, first.get(place, 0), end[place], request)
            if span.first < span.end:
                found.append(span)
    return found


def _whole(log: Log, first: int, end: int, request: Request) -> Span:
    name = text_of(place_of(log))
    if max(first, end) > log.end:
        _lost(
            request,
            f"{name} ends at offset {log.end}, before {max(first, end)}: it is another topic of this name, "
            "or another cluster",
        )
        first = first if first <= log.end else log.start
    if first < min(log.start, end):
        _lost(
            request,
            f"records {first} to {min(log.start, end) - 1} of {name} were deleted before they were read",
        )
    return Span(log=log, first=max(first, log.start), end=min(end, log.stable_end))


def _lost(request: Request, what: str) -> None:
    if request.fail_on_data_loss:
        raise DataLoss(what)


async def _resolve(lake: Lake, log: Log, position: Position) -> int | None:
    """The offset, or None if no record is as new."""
    place = place_of(log)
    match position:
        case Edge.EARLIEST:
            return log.start
        case Edge.LATEST:
            return log.stable_end
        case Offsets(of=offsets):
            return {EARLIEST: log.start, LATEST: log.stable_end}.get(offsets[place], offsets[place])
        case Times(of=times, everywhere=everywhere):
            return await offset_at(lake, log, times[place] if everywhere is None else everywhere)
        case never:
            assert_never(never)


def _check_named(position: Position, logs: Sequence[Log]) -> None:
    """Checks that offsets are given for exactly the selected partitions. A missing one would have no defined start."""
    named: Mapping[TopicPartition, int] | None = None
    match position:
        case Offsets(of=of):
            named = of
        case Times(of=of, everywhere=None):
            named = of
    if named is None:
        return
    wrong = sorted(map(text_of, named.keys() ^ {place_of(log) for log in logs}))
    if wrong:
        raise BadOption(f"offsets are for each partition that is read and no other; see {', '.join(wrong)}")

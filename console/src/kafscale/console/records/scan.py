"""A search by a consumer, for a console that does not read the store: newest first, by text only.

Law R5: it ends at HITS_MAX hits, after TIMEOUT_S, at READ_BYTES_MAX of keys and values, or when its reader leaves, and
each line says how much was read of how much and from which cut another search goes on. SCANS_MAX run at once, one of
each session: unlike a search of segments, it is work for the brokers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from kafscale.client.admin_client import Client
from kafscale.client.topics import NO_OFFSET, offsets_at
from kafscale.console.answers import Problem, Row
from kafscale.console.records import cursor
from kafscale.console.records.hits import HITS_MAX, TIMEOUT_S, hit_row
from kafscale.console.records.merge import Cut, Merge, Span, Walk
from kafscale.console.records.page import logs_of, states_of, walked
from kafscale.console.records.reading import Budget, Record

SCANS_MAX: Final = 2
READ_BYTES_MAX: Final = 256 << 20
STEP_RECORDS: Final = 5_000
"""Between two lines. A step also has the bounds of a page of records (R4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """`text` in lower case. Records from `since_ms` on, and before `until_ms`. `cut`: below it only."""

    topic: str
    text: str
    partition: int | None
    since_ms: int | None
    until_ms: int | None
    cut: Cut
    committed: bool

    def fits(self, record: Record) -> bool:
        if self.since_ms is not None and record.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp_ms >= self.until_ms:
            return False
        return any(
            self.text in data.decode("utf-8", "replace").lower()
            for data in (record.value, record.key)
            if data is not None
        )


class Scans:
    """Those that run, by session."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    @contextmanager
    def room(self, session: str) -> Iterator[None]:
        """Raises Problem."""
        if session in self._running or len(self._running) >= SCANS_MAX:
            whose = "your other search goes on" if session in self._running else "others search just now"
            sentence = f"{whose}; try again in a moment"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "busy", sentence)
        self._running.add(session)
        try:
            yield
        finally:
            self._running.discard(session)


@dataclass(slots=True)
class Step:
    """`found` and `newest_ms` of the records that were read, down to the cut `at`. `full`: there are more hits."""

    at: Cut
    found: list[Record] = field(default_factory=list)
    newest_ms: int | None = None
    bytes: int = 0
    full: bool = False
    states: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Of hits: open or aborted."""


def bounds(client: Client, sought: Sought) -> dict[int, Span]:
    """What the search reads, if nobody stops it. Raises KafkaTrouble and Problem."""
    logs = logs_of(client, sought.topic, sought.partition, committed=sought.committed)
    starts = {number: log.start for number, log in logs.items()}
    if sought.since_ms is not None:
        places = [(sought.topic, number) for number in logs]
        for (_, number), first in offsets_at(client, places, sought.since_ms).items():
            # No record before the first that is late enough is late enough.
            starts[number] = logs[number].end if first.offset == NO_OFFSET else first.offset
    ends = {number: min(sought.cut.get(number, log.end), log.end) for number, log in logs.items()}
    return {number: Span(start, max(ends[number], start)) for number, start in starts.items()}


def step(client: Client, sought: Sought, logs: Mapping[int, Span], at: Cut, hits_max: int) -> Step:
    """Reads on from the cut `at`. Raises KafkaTrouble."""
    merge: Merge[Record] = Merge(Walk.OLDER, logs, at, STEP_RECORDS)
    walked(client, sought.topic, merge, Budget(), committed=sought.committed)
    done = chosen(sought, merge.shown, at, merge.cut(), hits_max)
    if done.found and not sought.committed:
        done.states = states_of(client, sought.topic, done.found)
    return done


def chosen(sought: Sought, records: Sequence[Record], begin: Cut, end: Cut, hits_max: int) -> Step:
    """The hits of a walk from one cut to another. If there are more than `hits_max`, its cut is before the first that
    is left out. Pure."""
    result = Step(dict(begin), newest_ms=max((each.timestamp_ms for each in records), default=None))
    for record in records:
        if sought.fits(record):
            if len(result.found) == hits_max:
                result.full = True
                return result
            result.found.append(record)
        result.bytes += record.size
        result.at[record.partition] = record.offset
    result.at = dict(end)
    return result


Run = Callable[..., Awaitable[Step]]
"""`Call.kafka` of `step`."""


async def scanned(
    run: Run, sought: Sought, logs: Mapping[int, Span], now_s: Callable[[], float] = time.monotonic
) -> AsyncGenerator[Row, None]:
    """The lines of `api/search.py`; why it ended is `end`, `hits`, `time` or `bytes`. Raises Problem."""
    deadline_s = now_s() + TIMEOUT_S
    at = {number: log.end for number, log in logs.items()}
    records = sum(log.end - log.start for log in logs.values())
    found = taken = 0

    def line(newest_ms: int | None = None) -> Row:
        left = sum(at[number] - log.start for number, log in logs.items())
        progress = {"read": records - left, "records": records, "found": found}
        return progress | {"cursor": cursor.to_text(at), "at_ms": newest_ms, "consumer": True}

    yield line()
    while any(at[number] > log.start for number, log in logs.items()):
        if now_s() >= deadline_s or taken >= READ_BYTES_MAX:
            yield line() | {"end": "time" if now_s() >= deadline_s else "bytes"}
            return
        done = await run(step, sought, logs, at, HITS_MAX - found)
        at, found, taken = done.at, found + len(done.found), taken + done.bytes
        if done.found:
            yield {
                "hits": [
                    hit_row(
                        each.partition,
                        each.offset,
                        each.timestamp_ms,
                        each.key,
                        each.value,
                        done.states.get((each.partition, each.offset)),
                    )
                    for each in done.found
                ]
            }
        if done.full:
            yield line() | {"end": "hits"}
            return
        yield line(done.newest_ms)
    yield line() | {"end": "end"}

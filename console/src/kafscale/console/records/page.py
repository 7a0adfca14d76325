"""Pages of a topic's records, and one record with its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import IsolationLevel
from kafscale.client.admin_client import Client
from kafscale.client.topics import EARLIEST, LATEST, NO_OFFSET, find_topics, of_topic, offsets_at
from kafscale.console.answers import bad_request, not_found
from kafscale.console.records.merge import Cut, Merge, Span, Walk
from kafscale.console.records.reading import Budget, Record, consumer_of, read

PARTITIONS_MAX: Final = 500
"""Of one page: each must be read before the first record is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`partition` None: all. The walk begins at `cut`, or else at `offset` of each partition, or at the first record of
    `time_ms` or later, or at the end that the walk leaves. `committed`: without records of transactions that are open
    or aborted."""

    topic: str
    partition: int | None
    walk: Walk
    limit: int
    committed: bool
    cut: Cut | None = None
    offset: int | None = None
    time_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Page:
    """`records` in the order of the walk, which was from cut `begin` to cut `end`. `stopped`: why it ended early, if it
    did: time or bytes."""

    logs: dict[int, Span]
    begin: Cut
    end: Cut
    records: list[Record]
    stopped: str | None
    deleted: int
    """Offsets from the wanted place to the first that is still there."""
    waiting: int = 0
    """Of a page of committed records that has none: offsets in and behind open transactions."""
    states: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """By partition and offset: open or aborted."""


def page_of_records(client: Client, ask: Ask) -> Page:
    """Raises KafkaTrouble and Problem."""
    logs = logs_of(client, ask.topic, ask.partition, committed=ask.committed)
    wanted = _begin(client, ask, logs)
    budget = Budget()
    merge: Merge[Record] = Merge(ask.walk, logs, wanted, ask.limit)
    begin = merge.cut()
    walked(client, ask.topic, merge, budget, committed=ask.committed)
    stopped = budget.spent if merge.wanted() else None
    deleted = sum(max(logs[number].start - at, 0) for number, at in wanted.items() if number in logs)
    page = Page(
        logs=logs,
        begin=begin,
        end=merge.cut(),
        records=merge.shown,
        stopped=stopped,
        deleted=deleted,
    )
    if not ask.committed:
        page.states = states_of(client, ask.topic, page.records)
    elif not page.records:
        page.waiting = _waiting(client, ask.topic, logs)
    return page


def _waiting(client: Client, topic: str, partitions: Collection[int]) -> int:
    """How many offsets are at or behind the first record of an open transaction. Raises KafkaTrouble."""
    places = [(topic, number) for number in partitions]
    ends = offsets_at(client, places, LATEST)  # first, so that what is written meanwhile does not count
    stable = offsets_at(client, places, LATEST, IsolationLevel.READ_COMMITTED)
    return sum(max(ends[place].offset - stable[place].offset, 0) for place in places)


def numbers_of(client: Client, topic: str, partition: int | None) -> list[int]:
    """The topic's partitions; only this one if it is not None. Raises KafkaTrouble and Problem."""
    (found,) = find_topics(client, [topic])
    numbers = [each.id for each in found.partitions]
    if partition is not None:
        if partition not in numbers:
            raise not_found(f"{of_topic(topic)} has no partition {partition}; it has {len(numbers)}")
        return [partition]
    return numbers


def logs_of(client: Client, topic: str, partition: int | None, *, committed: bool) -> dict[int, Span]:
    """With `committed` a log ends at its last stable offset. Raises KafkaTrouble and Problem."""
    numbers = numbers_of(client, topic, partition)
    if len(numbers) > PARTITIONS_MAX:
        raise bad_request(
            f"{of_topic(topic)} has {len(numbers)} partitions, and a page is of {PARTITIONS_MAX} at most; choose one"
        )
    places = [(topic, number) for number in numbers]
    starts = offsets_at(client, places, EARLIEST)
    ends = offsets_at(client, places, LATEST, _isolation(committed))
    return {
        number: Span(
            starts[topic, number].offset, max(ends[topic, number].offset, starts[topic, number].offset)
        )
        for number in numbers
    }


def _isolation(committed: bool) -> IsolationLevel:
    return IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED


def _begin(client: Client, ask: Ask, logs: Mapping[int, Span]) -> Cut:
    if ask.cut is not None:
        return ask.cut
    if ask.offset is not None:
        return dict.fromkeys(logs, ask.offset)
    if ask.time_ms is not None:
        found = offsets_at(client, [(ask.topic, number) for number in logs], ask.time_ms)
        return {
            number: log.end if (at := found[ask.topic, number].offset) == NO_OFFSET else at
            for number, log in logs.items()
        }
    return {number: log.end if ask.walk is Walk.OLDER else log.start for number, log in logs.items()}


def walked(client: Client, topic: str, merge: Merge[Record], budget: Budget, *, committed: bool) -> None:
    """Until the page is full, the logs are at their ends, or the budget is spent. Raises KafkaTrouble."""
    with consumer_of(client, committed=committed) as consumer:
        while budget.spent is None and (windows := merge.wanted()):
            for partition, found in read(consumer, topic, windows, budget).items():
                window = windows[partition]
                if found.whole or merge.walk is Walk.NEWER:
                    merge.give(partition, Span(window.start, found.end), found.records)
                else:  # what was read is not next to the cut
                    merge.shrink(partition)


def states_of(client: Client, topic: str, records: Sequence[Record]) -> dict[tuple[int, int], str]:
    """Of those that a consumer with read_committed does not get. Within a second read of the same offsets; if that is
    cut off, records are without a state. Raises KafkaTrouble."""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.partition, []).append(record.offset)
    places = [(topic, number) for number in offsets]
    stable = offsets_at(client, places, LATEST, IsolationLevel.READ_COMMITTED)
    found = {
        (number, offset): "open"
        for number, mine in offsets.items()
        for offset in mine
        if offset >= stable[topic, number].offset
    }
    windows = {
        number: Span(min(mine), end)
        for number, mine in offsets.items()
        if (end := min(max(mine) + 1, stable[topic, number].offset)) > min(mine)
    }
    with consumer_of(client, committed=True) as consumer:
        read_again = read(consumer, topic, windows, Budget())
    for number, got in read_again.items():
        committed = {record.offset for record in got.records}
        for offset in offsets[number]:
            if windows[number].start <= offset < got.end and offset not in committed:
                found[number, offset] = "aborted"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """`previous` and `next`: the offsets of the neighbours in the partition. `missing`: why there is no record."""

    record: Record | None
    previous: int | None
    next: int | None
    log: Span
    state: str | None = None
    missing: str | None = None


def single_record(client: Client, topic: str, partition: int, offset: int, *, committed: bool) -> Single:
    """Raises KafkaTrouble."""

    def page(walk: Walk, limit: int) -> Page:
        cut = {partition: offset}
        ask = Ask(topic=topic, partition=partition, walk=walk, limit=limit, committed=committed, cut=cut)
        return page_of_records(client, ask)

    newer, older = page(Walk.NEWER, 2), page(Walk.OLDER, 1)
    found = [record for record in newer.records if record.offset == offset]
    after = [record.offset for record in newer.records if record.offset != offset]
    log = newer.logs[partition]
    return Single(
        record=found[0] if found else None,
        previous=older.records[0].offset if older.records else None,
        next=after[0] if after else None,
        log=log,
        state=newer.states.get((partition, offset)),
        missing=None if found else _why_missing(log, offset, committed),
    )


def _why_missing(log: Span, offset: int, committed: bool) -> str:
    if offset < log.start:
        return f"it is deleted: the first record of this partition has offset {log.start} or a later one"
    if offset >= log.end:
        open_ = ", or it belongs to a transaction that is open: show uncommitted records" if committed else ""
        return f"it is not written yet: the partition ends before offset {log.end}{open_}"
    hidden = ", it belongs to a transaction that was aborted (show uncommitted records)" if committed else ""
    return f"compaction removed it{hidden}, or the offset is the marker of a transaction"

"""Produces records of a topic to another topic again, such as those of a dead-letter topic.

Laws: a record is sent with its key, its value and the kept headers, in the order of its partition. What was not read is
not sent. Each place that was asked for has an outcome: its new place, or why it has none.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.client import json_lines
from kafscale.client.admin_client import Client, KafkaTrouble
from kafscale.client.topics import of_topic
from kafscale.console.answers import not_found
from kafscale.console.records.merge import Span
from kafscale.console.records.page import numbers_of
from kafscale.console.records.reading import Budget, Record, consumer_of, read
from kafscale.console.records.sending import send_all

READ_S: Final = 5.0
"""The rest of a request's time is for sending."""
_GAP_MAX: Final = 100
"""Offsets between two wanted records that are read along. Over a longer gap the consumer seeks."""
_GONE: Final = (
    "there is no such record: it was deleted or compacted, or its transaction is open or was aborted"
)
_UNREAD: Final = "not read in the time and the bytes of one request, and not sent: ask for it again"

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """`headers`: the names of those that are kept; None keeps all. `committed`: a record of a transaction that is open
    or was aborted is not found."""

    topic: str
    to: str
    places: Collection[Place]
    headers: Collection[str] | None
    committed: bool


def redrive(client: Client, ask: Redrive) -> dict[Place, Place | str]:
    """By the places of the source: the new place, or a sentence. Raises KafkaTrouble and Problem if nothing was
    sent."""
    numbers_of(client, ask.to, None)  # before anything is read
    known = numbers_of(client, ask.topic, None)
    for partition, _ in ask.places:
        if partition not in known:
            raise not_found(f"{of_topic(ask.topic)} has no partition {partition}; it has {len(known)}")
    found, unread = read_places(client, ask)
    order = sorted(found)
    sent = send_all(client, ask.to, [_again(found[place], ask.headers) for place in order]) if order else []
    outcomes: dict[Place, Place | str] = {
        place: _UNREAD if place in unread else _GONE for place in sorted(ask.places)
    }
    for place, outcome in zip(order, sent, strict=True):
        outcomes[place] = str(outcome) if isinstance(outcome, KafkaTrouble) else outcome
    return outcomes


def read_places(client: Client, ask: Redrive) -> tuple[dict[Place, Record], set[Place]]:
    """The records that are there, and the places at which nobody looked before the budget was spent. Raises
    KafkaTrouble."""
    found: dict[Place, Record] = {}
    left: dict[int, list[int]] = {}
    for partition, offset in sorted(set(ask.places)):
        left.setdefault(partition, []).append(offset)
    budget = Budget(until_s=time.monotonic() + READ_S)
    with consumer_of(client, committed=ask.committed) as consumer:
        while left and budget.spent is None:
            windows = {partition: _window(offsets) for partition, offsets in left.items()}
            for partition, got in read(consumer, ask.topic, windows, budget).items():
                wanted = set(left[partition])
                found |= {
                    (partition, record.offset): record for record in got.records if record.offset in wanted
                }
                left[partition] = [offset for offset in left[partition] if offset >= got.end]
            left = {partition: offsets for partition, offsets in left.items() if offsets}
    return found, {(partition, offset) for partition, offsets in left.items() for offset in offsets}


def _window(offsets: Sequence[int]) -> Span:
    """From the first to the last that has no long gap before it. `offsets` ascend."""
    end = offsets[0] + 1
    for offset in offsets[1:]:
        if offset - end > _GAP_MAX:
            break
        end = offset + 1
    return Span(offsets[0], end)


def _again(record: Record, headers: Collection[str] | None) -> json_lines.Record:
    """With the time of now and the partition of its key: the other topic has its own retention and partitions."""
    kept = record.headers if headers is None else tuple(each for each in record.headers if each[0] in headers)
    return json_lines.Record(key=record.key, value=record.value, headers=kept)


def rows_of(outcomes: Mapping[Place, Place | str]) -> list[dict[str, int | str | None]]:
    """`partition` and `offset` of the source, `to_partition` and `to_offset`, or `sentence`."""
    rows: list[dict[str, int | str | None]] = []
    for (partition, offset), outcome in outcomes.items():
        to, sentence = ((None, None), outcome) if isinstance(outcome, str) else (outcome, None)
        rows.append(
            {
                "partition": partition,
                "offset": offset,
                "to_partition": to[0],
                "to_offset": to[1],
                "sentence": sentence,
            }
        )
    return rows

"""The reset of a group's offsets: a preview, then the change of exactly what the preview showed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client
from kafscale.client.groups import NO_MEMBERS, commit_offsets, committed_offsets, list_all_groups
from kafscale.client.topics import EARLIEST, LATEST, NO_OFFSET, find_topics, offsets_at
from kafscale.console.answers import Problem, Row, bad_request
from kafscale.console.records.merge import Span
from kafscale.console.records.reading import Budget, consumer_of, read
from kafscale.console.reset import (
    ROWS_MAX,
    Aim,
    AimWrong,
    Bounds,
    Place,
    Planned,
    commands,
    moved,
    planned,
    time_of,
    wishes,
)
from kafscale.console.rights import on_group
from kafscale.console.routes import Call, Route
from kafscale.operations.positions import now_ms

FIRST_MAX: Final = 20
FIRST_TIMEOUT_S: Final = 3.0


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """`partitions`: of a topic that is not reset as a whole."""

    topics: Annotated[list[str], msgspec.Meta(min_length=1, max_length=1_000)]
    aim: Aim
    partitions: dict[str, list[int]] = {}


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """The rows of the preview."""

    rows: Annotated[list[Planned], msgspec.Meta(min_length=1, max_length=ROWS_MAX)]


async def preview(call: Call) -> Row:
    """`rows` as `reset.Planned`. `members`: whether the group has some, so that the change would be refused. `times` of
    the records that the group would read first: [topic, partition, ms], for FIRST_MAX partitions at most. `commands`:
    the same with the command."""
    wanted: Any = call.body
    name = call.path["group"]
    try:
        rows, found = await call.kafka(_preview, name, wanted)
    except AimWrong as wrong:
        raise bad_request(str(wrong)) from wrong
    readable = await call.seen({row.topic for row in rows}, Operation.READ)
    moving = [row for row in rows if row.topic in readable and row.after not in (row.before, row.end)]
    times = await call.kafka(_first_times, moving[:FIRST_MAX]) if moving else []
    return {**found, "rows": msgspec.to_builtins(rows), "times": times}


def _first_times(client: Client, rows: Sequence[Planned]) -> list[tuple[str, int, int]]:
    found = []
    budget = Budget(until_s=time.monotonic() + FIRST_TIMEOUT_S)
    with consumer_of(client, committed=False) as consumer:
        for topic in dict.fromkeys(row.topic for row in rows):
            windows = {row.partition: Span(row.after, row.after + 1) for row in rows if row.topic == topic}
            for number, window in read(consumer, topic, windows, budget).items():
                found += [(topic, number, record.timestamp_ms) for record in window.records]
    return found


def _preview(client: Client, name: str, wanted: Wanted) -> tuple[list[Planned], Row]:
    counts = {topic.name: len(topic.partitions) for topic in find_topics(client, wanted.topics)}
    places = [
        (topic, number)
        for topic, count in counts.items()
        for number in wanted.partitions.get(topic, range(count))
        if 0 <= number < count
    ]
    if not 0 < len(places) <= ROWS_MAX:
        raise AimWrong(f"choose 1 to {ROWS_MAX:,} partitions")
    before = committed_offsets(client, name)
    starts, ends = offsets_at(client, places, EARLIEST), offsets_at(client, places, LATEST)
    bounds = {place: Bounds(starts[place].offset, ends[place].offset) for place in places}
    rows = planned(before, bounds, _wishes(client, wanted.aim, before, bounds))
    listed = next((row for row in list_all_groups(client) if row["group"] == name), None)
    return rows, {
        "members": listed is not None and listed["state"].upper() not in NO_MEMBERS,
        "left_out": len(places) - len(rows),
        "commands": commands(name, wanted.aim, rows, counts),
    }


def _wishes(
    client: Client, aim: Aim, before: dict[Place, int], bounds: dict[Place, Bounds]
) -> dict[Place, int]:
    """Raises AimWrong."""
    match aim.to:
        case "earliest":
            return {place: log.start for place, log in bounds.items()}
        case "latest":
            return {place: log.end for place, log in bounds.items()}
        case "time" | "duration":
            found = offsets_at(client, bounds, time_of(aim, now_ms()))
            return {
                place: log.end if found[place].offset == NO_OFFSET else found[place].offset
                for place, log in bounds.items()
            }
        case "group":
            if not aim.group:
                raise AimWrong("name the other group")
            return {
                place: at for place, at in committed_offsets(client, aim.group).items() if place in bounds
            }
        case _:
            return wishes(aim, before, bounds)


async def reset(call: Call) -> Row:
    """Commits the offsets of the rows, and answers with what was read back. 409 if the group moved meanwhile; the
    coordinator refuses one with members."""
    change: Any = call.body
    rows: list[Planned] = change.rows
    name = call.path["group"]
    if elsewhere := moved(rows, await call.kafka(committed_offsets, name)):
        topic, number = elsewhere[0]
        sentence = (
            f"the group moved since the preview, first in partition {topic}/{number}; nothing was reset: look at a "
            "new preview"
        )
        raise Problem(HTTPStatus.CONFLICT, "moved", sentence)
    await call.kafka(commit_offsets, name, {(row.topic, row.partition): row.after for row in rows})
    now = await call.kafka(committed_offsets, name)
    return {
        "rows": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "sent": row.after,
                "read": now.get((row.topic, row.partition)),
            }
            for row in rows
        ]
    }


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="POST",
        path="/groups/{group}/reset/preview",
        handler=preview,
        needs=on_group(Operation.DESCRIBE),
        body=Wanted,
    ),
    Route(
        method="POST",
        path="/groups/{group}/reset",
        handler=reset,
        needs=on_group(Operation.READ),
        changes=True,
        body=Change,
        body_bytes_max=8 * 1024 * 1024,
    ),
)

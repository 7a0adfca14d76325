"""The records of a topic: pages over all partitions, and one record with all its formats."""

from __future__ import annotations

import asyncio
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.client import json_lines
from kafscale.console.answers import Row, bad_request, one_of, whole
from kafscale.console.api.showing import Showing, showing_of
from kafscale.console.decode.plain import View, all_views, dump_of, view_of
from kafscale.console.records import cursor
from kafscale.console.records.merge import Cut, Walk
from kafscale.console.records.page import Ask, Page, Single, page_of_records, single_record
from kafscale.console.records.reading import READ_BYTES_MAX, Record
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route
from kafscale.operations.positions import WAYS, now_ms, parse_time

ROWS: Final = 50
ROWS_MAX: Final = 500
DUMP_BYTES_MAX: Final = 64 * 1024
PARTITION_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 2
_FROM: Final = ("newest", "oldest", "offset", "time")
ISOLATIONS: Final = ("committed", "uncommitted")


async def records(call: Call) -> Row:
    """`from`: newest (default), oldest, offset or time, the last two with `at`. Or `cursor` and `walk` (older or
    newer), which an earlier answer gave. `partition`, `limit`, `isolation` (committed or uncommitted), `key_as` and
    `value_as` (a Format)."""
    ask = ask_of(call.path["topic"], call.query)
    page: Page = await call.kafka(page_of_records, ask)
    showing = await showing_of(call, page.records)
    return await asyncio.to_thread(row_of, page, ask.walk, showing)


def ask_of(topic: str, query: Mapping[str, str]) -> Ask:
    """Raises Problem."""
    begin = one_of(query, "from", _FROM)
    walk = Walk.OLDER if begin == "newest" else Walk.NEWER
    at = query.get("at", "")
    time_ms = None
    if begin == "time" and (time_ms := parse_time(at, now_ms())) is None:
        raise bad_request(f"at is a time: {WAYS}")
    offset = whole({"at": at or "0"}, "at", 0, 0, OFFSET_MAX) if begin == "offset" else None
    cut = cut_of(query)
    if cut is not None:
        walk = Walk(one_of(query, "walk", [each.value for each in Walk]))
    number = query.get("partition", "")
    return Ask(
        topic=topic,
        partition=whole(query, "partition", 0, 0, PARTITION_MAX) if number else None,
        walk=walk,
        limit=whole(query, "limit", ROWS, 1, ROWS_MAX),
        committed=_committed(query),
        cut=cut,
        offset=offset,
        time_ms=time_ms,
    )


def cut_of(query: Mapping[str, str]) -> Cut | None:
    """Where an earlier answer ended, if the query says it. Raises Problem."""
    if not (text := query.get("cursor", "")):
        return None
    try:
        return cursor.from_text(text)
    except ValueError as wrong:
        raise bad_request(f"cursor: {wrong}") from wrong


def _committed(query: Mapping[str, str]) -> bool:
    return one_of(query, "isolation", ISOLATIONS) == "committed"


def row_of(page: Page, walk: Walk, showing: Showing) -> Row:
    """`items` in the order of the walk. `older` and `newer` are cursors of the neighbouring pages, null at an end."""
    low, high = (page.end, page.begin) if walk is Walk.OLDER else (page.begin, page.end)
    return {
        "items": [
            record_row(record, showing, page.states.get((record.partition, record.offset)))
            for record in page.records
        ],
        "walk": walk.value,
        "older": cursor.to_text(low)
        if any(at > page.logs[number].start for number, at in low.items())
        else None,
        "newer": cursor.to_text(high),
        "at_end": all(at == page.logs[number].end for number, at in high.items()),
        "offsets": sum(log.end - log.start for log in page.logs.values()),
        "partitions": len(page.logs),
        "deleted": page.deleted,
        "waiting": page.waiting,
        "stopped": page.stopped,
    }


def record_row(record: Record, showing: Showing, state: str | None = None) -> Row:
    return _place_row(record) | {
        "state": state,
        "key": showing.of(record.key, showing.key),
        "value": showing.of(record.value, showing.value),
        "headers": [{"name": name, "value": view_of(value)} for name, value in record.headers],
    }


def _place_row(record: Record) -> Row:
    return {
        "id": f"{record.partition}/{record.offset}",
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "timestamp_kind": record.timestamp_kind,
        "leader_epoch": record.leader_epoch,
        "bytes": record.size,
    }


async def one_record(call: Call) -> Row:
    """`record` is null if there is none; `missing` says why. `previous` and `next` are the
    offsets of its neighbours in the partition."""
    topic = call.path["topic"]
    partition = whole(call.path, "partition", 0, 0, PARTITION_MAX)
    offset = whole(call.path, "offset", 0, 0, OFFSET_MAX)
    committed = _committed(call.query)
    found: Single = await call.kafka(
        lambda client: single_record(client, topic, partition, offset, committed=committed)
    )
    records = [] if found.record is None else [found.record]
    showing = await showing_of(call, records, READ_BYTES_MAX)
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "start": found.log.start,
        "end": found.log.end,
        "previous": found.previous,
        "next": found.next,
        "missing": found.missing,
        "record": None
        if found.record is None
        else await asyncio.to_thread(_whole_record, topic, found.record, found.state, showing),
    }


def _whole_record(topic: str, record: Record, state: str | None, showing: Showing) -> Row:
    return _place_row(record) | {
        "state": state,
        "key": _field(record.key, showing.of(record.key, showing.key)),
        "value": _field(record.value, showing.of(record.value, showing.value)),
        "headers": [
            {"name": name, **_field(value, view_of(value, chars_max=READ_BYTES_MAX))}
            for name, value in record.headers
        ],
        "json": json_lines.to_line(json_record(topic, record)).decode(),
        "command": command_of(topic, record.partition, record.offset),
    }


def _field(data: bytes | None, shown: View) -> Row:
    """`shown` as a list shows it, `views` in every format that fits, `dump` in hex with offsets."""
    return {
        "shown": shown,
        "views": all_views(data, READ_BYTES_MAX),
        "dump": "" if data is None else dump_of(data, DUMP_BYTES_MAX),
        "base64": None if data is None else b64encode(data).decode(),
    }


def json_record(topic: str, record: Record) -> json_lines.Record:
    """As `kafscale consume --output json` prints it, and `kafscale produce --json` reads it."""
    return json_lines.Record(
        topic=topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def command_of(topic: str, partition: int, offset: int) -> str:
    """Prints this record in a terminal."""
    return shlex.join(
        ["kafscale", "consume", "-p", str(partition), "-o", str(offset), "-c", "1", "--", topic]
    )


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/topics/{topic}/records", handler=records, needs=on_topic(Operation.READ)),
    Route(
        method="GET",
        path="/topics/{topic}/records/{partition}/{offset}",
        handler=one_record,
        needs=on_topic(Operation.READ),
    ),
)

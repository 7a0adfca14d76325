"""Search of the records of a topic by an SQL condition or a text: newest first, to be stopped and continued.

A console that does not read the store searches by a text only, with a consumer (`records/scan.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.console.answers import Lines, Row, bad_request, forbidden, one_of, whole
from kafscale.console.api.records import ISOLATIONS, PARTITION_MAX, cut_of
from kafscale.console.api.sql import session_of
from kafscale.console.records.scan import Sought, bounds, scanned
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route
from kafscale.operations.positions import WAYS, now_ms, parse_time

CONDITION_CHARS_MAX: Final = 16 * 1024
NO_SQL: Final = "this console does not read the object store (--no-direct), so it searches by a text only"


async def search(call: Call) -> Lines:
    """`where` (SQL) or `text`; `partition`; `since` and `until` (times); `cursor` of an earlier answer; `isolation`.

    Lines {hits}, {read, records, found, cursor, at_ms} and, as the last, {end}: `end`, `hits`, `time`, or `bytes` of
    the search by a consumer.
    """
    topic, query = call.path["topic"], call.query
    where, text = query.get("where", "").strip(), query.get("text", "")
    if bool(where) == bool(text) or len(where) + len(text) > CONDITION_CHARS_MAX:
        raise bad_request("give a text or a condition to search for")
    if where and call.site.stores is None:
        raise bad_request(NO_SQL)
    question: Row = {
        "kind": "search",
        "topic": topic,
        "where": where,
        "text": text,
        "partition": whole(query, "partition", 0, 0, PARTITION_MAX) if query.get("partition") else None,
        "since_ms": _time(query, "since"),
        "until_ms": _time(query, "until"),
        "cut": {str(partition): offset for partition, offset in (cut_of(query) or {}).items()},
        "isolation": one_of(query, "isolation", ISOLATIONS),
    }
    call.login.rights.forget()  # much is read with one answer
    if topic not in await call.seen([topic], Operation.READ):
        raise forbidden(f"this login may no longer read topic '{topic}'")
    if call.site.stores is not None:
        return Lines(await call.stores.children.ask(session_of(call), question))
    scan = _scan(call, question)
    await anext(scan)  # what is refused before the first line has its status
    return Lines(scan)


async def _scan(call: Call, question: Row) -> AsyncGenerator[Row, None]:
    sought = Sought(
        topic=question["topic"],
        text=question["text"].lower(),
        partition=question["partition"],
        since_ms=question["since_ms"],
        until_ms=question["until_ms"],
        cut={int(partition): offset for partition, offset in question["cut"].items()},
        committed=question["isolation"] == "committed",
    )
    with call.site.scans.room(session_of(call)):
        logs = await call.kafka(bounds, sought)
        yield {}
        async for line in scanned(call.kafka, sought, logs):
            yield line


def _time(query: Mapping[str, str], name: str) -> int | None:
    if not (text := query.get(name, "")):
        return None
    if (found := parse_time(text, now_ms())) is None:
        raise bad_request(f"{name} is a time: {WAYS}")
    return found


def _asked(call: Call) -> dict[str, str] | None:
    if call.site.stores is None:
        return None
    return {
        "topic": call.path["topic"],
        "condition": call.query.get("where", "") or call.query.get("text", ""),
    }


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="GET",
        path="/topics/{topic}/search",
        handler=search,
        needs=on_topic(Operation.READ),
        audit=_asked,
    ),
)

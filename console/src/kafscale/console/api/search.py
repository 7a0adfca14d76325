"""Search of the records of a topic by an SQL condition or a text: newest first, to be stopped and continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.console.answers import Lines, bad_request, forbidden, one_of, whole
from kafscale.console.api.records import ISOLATIONS, PARTITION_MAX, cut_of
from kafscale.console.api.sql import session_of
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route
from kafscale.operations.positions import WAYS, now_ms, parse_time

CONDITION_CHARS_MAX: Final = 16 * 1024


async def search(call: Call) -> Lines:
    """`where` (SQL) or `text`; `partition`; `since` and `until` (times); `cursor` of an earlier answer; `isolation`.

    Lines {hits}, {read, records, found, cursor, at_ms} and, as the last, {end}: `end`, `hits` or `time`.
    """
    topic, query = call.path["topic"], call.query
    where, text = query.get("where", "").strip(), query.get("text", "")
    if bool(where) == bool(text) or len(where) + len(text) > CONDITION_CHARS_MAX:
        raise bad_request("give a text or a condition to search for")
    question = {
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
    return Lines(await call.stores.children.ask(session_of(call), question))


def _time(query: Mapping[str, str], name: str) -> int | None:
    if not (text := query.get(name, "")):
        return None
    if (found := parse_time(text, now_ms())) is None:
        raise bad_request(f"{name} is a time: {WAYS}")
    return found


def _sought(call: Call) -> dict[str, str]:
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
        direct=True,
        audit=_sought,
    ),
)

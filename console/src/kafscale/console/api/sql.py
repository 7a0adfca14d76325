"""SQL over the topics that the login may read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.groups import list_all_groups
from kafscale.client.topics import topic_names
from kafscale.console.answers import Lines, Row, bad_request
from kafscale.console.direct.sql_tables import TABLES
from kafscale.console.logins import Mode
from kafscale.console.rights import Admits
from kafscale.console.routes import Call, Route

TEXT_CHARS_MAX: Final = 64 * 1024
_OF_GROUPS: Final = re.compile(r"groups|commits|lag", re.IGNORECASE)
"""Tables that have groups. A text without these words reads none, whose rights are many questions."""


class Query(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    isolation: Literal["committed", "uncommitted"] = "committed"
    format: Literal["rows", "parquet"] = "rows"


async def tables(_: Call) -> Row:
    return {"items": [{"table": name, "columns": list(columns)} for name, columns in TABLES.items()]}


async def sql(call: Call) -> Lines:
    """Lines {columns}, {rows}, {read} and {end}. As `parquet`, {parquet} instead of {rows}: the file in parts, each in
    base64."""
    asked: Query = call.body
    if not asked.text.strip() or len(asked.text) > TEXT_CHARS_MAX:
        raise bad_request(f"give a query of at most {TEXT_CHARS_MAX:,} characters")
    topics = await topics_to(call, Operation.READ)
    groups: frozenset[str] = frozenset()
    if _OF_GROUPS.search(asked.text):
        groups = await call.seen_groups([row["group"] for row in await call.kafka(list_all_groups)])
    question = {
        "kind": "sql",
        "text": asked.text,
        "isolation": asked.isolation,
        "parquet": asked.format == "parquet",
        "topics": sorted(topics),
        "configs": sorted(await call.seen(topics, Operation.DESCRIBE_CONFIGS)),
        "groups": sorted(groups),
    }
    return Lines(await call.stores.children.ask(session_of(call), question))


async def topics_to(call: Call, operation: Operation) -> frozenset[str]:
    """Those that this login may use so. Asked anew: much is read with one answer."""
    names = await call.kafka(topic_names)
    if operation is Operation.DESCRIBE:
        return frozenset(names)  # the front door lists no others
    call.login.rights.forget()
    return await call.seen(names, operation)


def session_of(call: Call) -> str:
    """Whose turn it is. Without logins, all requests of an address share a turn."""
    personal = call.site.logins.entrance.mode is Mode.PERSONAL
    return call.session_id if personal and call.session_id is not None else call.peer


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/sql/tables", handler=tables, needs=Admits.LOGIN, direct=True),
    Route(
        method="POST",
        path="/sql",
        handler=sql,
        needs=Admits.LOGIN,
        direct=True,
        body=Query,
        audit=lambda call: {"text": call.body.text},
    ),
)

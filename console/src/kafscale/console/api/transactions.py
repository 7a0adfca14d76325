"""Transactions: those that exist, those that hang, and the end of one. A cluster without them says so in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client
from kafscale.client.topics import topic_names
from kafscale.client.transactions import (
    abort_transaction,
    describe_transactions_of,
    find_hanging,
    list_all_transactions,
    terminate_transaction,
    transaction_at,
)
from kafscale.console.answers import Row, page_of, whole
from kafscale.console.rights import Admits
from kafscale.console.routes import Call, Route
from kafscale.operations.positions import now_ms

COLUMNS: Final = ("transactional_id", "transaction_state", "producer_id")
OLDER_MIN: Final = 15
"""As in Kafka's command: a transaction hangs if its last record is older than the longest timeout, 15 minutes."""
_OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Hanging(msgspec.Struct, forbid_unknown_fields=True):
    """Where a hanging transaction begins."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0)]
    start_offset: Annotated[int, msgspec.Meta(ge=0)]


async def transactions(call: Call) -> Row:
    """Those of the ids that this login may describe; with `open=1` only those that are not over. The page's are asked
    for their start, duration and partitions."""
    rows = await call.kafka(list_all_transactions)
    if call.query.get("open") == "1":
        rows = [row for row in rows if row["transaction_state"] not in _OVER]
    page = page_of(rows, call.query, columns=COLUMNS, search="transactional_id")
    names = [row["transactional_id"] for row in page["items"]]
    known = await call.kafka(describe_transactions_of, names, now_ms()) if names else {}
    page["items"] = [row | _more(known.get(row["transactional_id"])) for row in page["items"]]
    return page


def _more(row: Row | None) -> Row:
    if row is None:
        return {"started_ms": None, "duration_ms": None, "timeout_ms": None, "partitions": []}
    return {
        "started_ms": _ms(row["current_transaction_start_time"]),
        "duration_ms": row["transaction_duration_ms"],
        "timeout_ms": row["transaction_timeout_ms"],
        "partitions": row["topic_partitions"],
    }


def _ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


async def hanging(call: Call) -> Row:
    """In one topic, or in all that this login may READ. `minutes`: the age of the last record (OLDER_MIN)."""
    older_ms = whole(call.query, "minutes", OLDER_MIN, 0, None) * 60_000
    names = [call.query["topic"]] if "topic" in call.query else await call.kafka(topic_names)
    readable = await call.seen(names, Operation.READ)
    rows = await call.kafka(_hanging, readable, older_ms)
    return {"items": rows, "topics": len(readable), "not_readable": len(names) - len(readable)}


def _hanging(client: Client, topics: frozenset[str], older_ms: int) -> list[Row]:
    rows = find_hanging(client, now_ms(), older_ms=older_ms, among=topics)
    return [row | {"last_timestamp": _ms(row["last_timestamp"])} for row in rows]


async def abort(call: Call) -> Row:
    """Writes the abort marker. Refused for a transaction that a coordinator knows."""

    def work(client: Client) -> None:
        abort_transaction(
            client, transaction_at(client, call.body.topic, call.body.partition, call.body.start_offset)
        )

    await call.kafka(work)
    return {}


async def terminate(call: Call) -> Row:
    """Fences the producer, which aborts the transaction that is under way."""
    await call.kafka(terminate_transaction, call.path["id"], now_ms())
    return {}


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/transactions", handler=transactions, needs=Admits.LOGIN),
    Route(method="GET", path="/transactions/hanging", handler=hanging, needs=Admits.LOGIN),
    Route(
        method="POST",
        path="/transactions/abort",
        handler=abort,
        needs=Admits.LOGIN,
        changes=True,
        body=Hanging,
    ),
    Route(
        method="POST",
        path="/transactions/{id}/terminate",
        handler=terminate,
        needs=Admits.LOGIN,
        changes=True,
    ),
)

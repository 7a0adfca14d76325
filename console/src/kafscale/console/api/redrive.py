"""Records of a page or of a search are produced to another topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from kafscale.access.acl import Operation
from kafscale.console.answers import Row, bad_request, forbidden
from kafscale.console.api.records import OFFSET_MAX, PARTITION_MAX, ROWS_MAX
from kafscale.console.records.redrive import Redrive, redrive, rows_of
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route

HEADERS_MAX: Final = 256


class GivenRedrive(msgspec.Struct, forbid_unknown_fields=True):
    """`records`: partitions and offsets. `headers`: the names that are kept; null keeps all."""

    to: str
    records: list[tuple[int, int]]
    headers: list[str] | None = None
    isolation: Literal["committed", "uncommitted"] = "committed"


async def produce_again(call: Call) -> Row:
    """`items`: of each record its `partition` and `offset`, and `to_partition` and `to_offset`, or `sentence`: why it
    has no new place. `written`: how many have one."""
    ask = ask_of(call.path["topic"], call.body)
    if ask.to not in await call.seen([ask.to], Operation.WRITE):
        raise forbidden(f"this login may not write to topic '{ask.to}', or it does not exist")
    items = rows_of(await call.kafka(redrive, ask))
    return {"items": items, "written": sum(each["sentence"] is None for each in items)}


def ask_of(topic: str, given: Any) -> Redrive:
    """Raises Problem."""
    if not given.to or given.to == topic:
        raise bad_request("to is the name of another topic")
    if not 0 < len(given.records) <= ROWS_MAX:
        raise bad_request(f"1 to {ROWS_MAX} records are sent at once")
    if len(given.headers or ()) > HEADERS_MAX:
        raise bad_request(f"{HEADERS_MAX} names of headers are kept at most")
    for partition, offset in given.records:
        if not 0 <= partition <= PARTITION_MAX or not 0 <= offset <= OFFSET_MAX:
            raise bad_request("a record is a partition and an offset, which are whole numbers from 0")
    return Redrive(
        topic=topic,
        to=given.to,
        places=frozenset(given.records),
        headers=None if given.headers is None else frozenset(given.headers),
        committed=given.isolation == "committed",
    )


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="POST",
        path="/topics/{topic}/records/redrive",
        handler=produce_again,
        needs=on_topic(Operation.READ),
        changes=True,
        body=GivenRedrive,
    ),
)

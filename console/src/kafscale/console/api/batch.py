"""The batch of a record, as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.console.answers import Lines, forbidden, whole
from kafscale.console.api.records import OFFSET_MAX, PARTITION_MAX
from kafscale.console.api.sql import session_of
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route


async def batch(call: Call) -> Lines:
    """One line {batch} (`direct.batch`)."""
    topic = call.path["topic"]
    question = {
        "kind": "batch",
        "topic": topic,
        "partition": whole(call.path, "partition", 0, 0, PARTITION_MAX),
        "offset": whole(call.path, "offset", 0, 0, OFFSET_MAX),
    }
    if topic not in await call.seen([topic], Operation.READ):
        raise forbidden(f"this login may no longer read topic '{topic}'")
    return Lines(await call.stores.children.ask(session_of(call), question))


def _place(call: Call) -> dict[str, str]:
    return {name: call.path[name] for name in ("topic", "partition", "offset")}


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="GET",
        path="/topics/{topic}/records/{partition}/{offset}/batch",
        handler=batch,
        needs=on_topic(Operation.READ),
        direct=True,
        audit=_place,
    ),
)

"""What topics cost, and the state of the services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.console.answers import Lines, whole
from kafscale.console.api.sql import session_of, topics_to
from kafscale.console.rights import on_cluster
from kafscale.console.routes import Call, Route, nothing_more

SECONDS: Final = 10
SECONDS_MAX: Final = 45


async def cost(call: Call) -> Lines:
    """Lines {measuring} and {cost}; `seconds` is how long requests are counted."""
    seconds = whole(call.query, "seconds", SECONDS, 1, SECONDS_MAX)
    topics = await topics_to(call, Operation.DESCRIBE)
    question = {"kind": "cost", "topics": sorted(topics), "seconds": seconds}
    return Lines(await call.stores.children.ask(session_of(call), question))


async def health(call: Call) -> Lines:
    """One line {picture}."""
    return Lines(await call.stores.children.ask(session_of(call), {"kind": "health"}))


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="GET",
        path="/cost",
        handler=cost,
        needs=on_cluster(Operation.DESCRIBE),
        direct=True,
        audit=nothing_more,
    ),
    Route(
        method="GET",
        path="/health",
        handler=health,
        needs=on_cluster(Operation.DESCRIBE),
        direct=True,
        audit=nothing_more,
    ),
)

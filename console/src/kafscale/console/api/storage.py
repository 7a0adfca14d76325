"""What is stored and whether it is whole: storage, and checks for damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.console.answers import Lines, bad_request, forbidden
from kafscale.console.api.sql import session_of, topics_to
from kafscale.console.direct.questions import LONG_CPU_S, LONG_WALL_S
from kafscale.console.rights import on_cluster
from kafscale.console.routes import Call, Route, nothing_more

TOPICS_MAX: Final = 10_000


class Check(msgspec.Struct, forbid_unknown_fields=True):
    """`topics` None: everything, with what belongs to no topic."""

    topics: list[str] | None = None


async def storage(call: Call) -> Lines:
    """Lines {topics}, {etcd}, {upkeep}, {bundles} and {sizes}. Topics without DESCRIBE are summed without a name."""
    question = {"kind": "storage", "topics": sorted(await topics_to(call, Operation.DESCRIBE))}
    return Lines(await call.stores.children.ask(session_of(call), question))


async def damage(call: Call) -> Lines:
    """Lines {at, done, total}, {problems}, {orphans} and {end}. Closing the connection ends the check."""
    asked: Check = call.body
    seen = await topics_to(call, Operation.DESCRIBE)
    names = None if asked.topics is None else sorted(set(asked.topics))
    if names is not None and not 0 < len(names) <= TOPICS_MAX:
        raise bad_request(f"topics has 1 to {TOPICS_MAX:,} names; leave it out to check everything")
    if names is not None and (hidden := [name for name in names if name not in seen]):
        raise forbidden(f"this login sees no topic '{hidden[0]}'")
    question = {"kind": "damage", "topics": names, "seen": sorted(seen)}
    return Lines(
        await call.stores.children.ask(session_of(call), question, wall_s=LONG_WALL_S, cpu_s=LONG_CPU_S)
    )


def _checked(call: Call) -> dict[str, str]:
    return {"topics": "all" if call.body.topics is None else ", ".join(call.body.topics)}


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="GET",
        path="/storage",
        handler=storage,
        needs=on_cluster(Operation.DESCRIBE),
        direct=True,
        audit=nothing_more,
    ),
    Route(
        method="POST",
        path="/damage",
        handler=damage,
        needs=on_cluster(Operation.DESCRIBE),
        direct=True,
        audit=_checked,
        body=Check,
    ),
)

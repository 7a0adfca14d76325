"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.quotas import KINDS, alter_quotas, list_quotas
from kafscale.console.answers import Row, bad_request, page_of
from kafscale.console.rights import on_cluster
from kafscale.console.routes import Call, Route

COLUMNS: Final = ("entity", "quota", "value")


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """`entity`: kinds and names; the name of the default is null. A value of null removes the quota."""

    entity: Annotated[dict[str, str | None], msgspec.Meta(min_length=1, max_length=2)]
    values: Annotated[dict[str, float | None], msgspec.Meta(min_length=1, max_length=16)]


async def quotas(call: Call) -> Row:
    """A row for each quota: the entity in words, and its parts in `of`, as `Change` takes them."""
    rows = []
    for row in await call.kafka(list_quotas, {}):
        of = {
            kind: None if row[kind] == "<default>" else row[kind] for kind in KINDS if row[kind] is not None
        }
        words = ", ".join(
            f"every other {kind}" if name is None else f"{kind} {name}" for kind, name in of.items()
        )
        rows.append({"entity": words, "of": of, "quota": row["quota"], "value": row["value"]})
        rows[-1]["key"] = f"{words} {row['quota']}"
    return page_of(rows, call.query, columns=COLUMNS, search="entity")


async def change(call: Call) -> Row:
    asked: Any = call.body
    if not set(asked.entity) <= set(KINDS):
        raise bad_request(f"an entity has {', '.join(KINDS)}")
    await call.kafka(alter_quotas, asked.entity, asked.values)
    return {}


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/quotas", handler=quotas, needs=on_cluster(Operation.DESCRIBE_CONFIGS)),
    Route(
        method="PUT",
        path="/quotas",
        handler=change,
        needs=on_cluster(Operation.ALTER_CONFIGS),
        changes=True,
        body=Change,
    ),
)

"""ACLs: list, add by recipes, remove, and why somebody may do something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from kafscale.access.acl import AclBinding, AclFilter, Operation, ResourceType
from kafscale.client.acl_options import WrongOptions, operation_named
from kafscale.client.acls import create_acls, delete_acls, list_acls
from kafscale.console.acls import AclRow, Question, Recipe, binding_of, explain, row_of, rows_of
from kafscale.console.answers import Row, bad_request, page_of
from kafscale.console.rights import on_cluster
from kafscale.console.routes import Call, Route

COLUMNS: Final = ("principal", "resource", "name", "pattern", "operation", "permission", "host")


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    rows: Annotated[list[AclRow], msgspec.Meta(min_length=1, max_length=1_000)]


async def acls(call: Call) -> Row:
    """`q` is a part of the row's words, such as a principal or a resource's name."""
    found = await call.kafka(list_acls, [AclFilter()])
    rows = [msgspec.to_builtins(row_of(acl)) for acl in found]
    rows = [row | {"text": " ".join(row[name] for name in COLUMNS)} for row in rows]
    return page_of(rows, {"sort": "principal"} | dict(call.query), columns=COLUMNS, search="text")


async def preview(call: Call) -> Row:
    """The ACLs that a recipe makes."""
    try:
        rows = rows_of(call.body)
    except WrongOptions as wrong:
        raise bad_request(str(wrong)) from wrong
    return {"rows": msgspec.to_builtins(rows)}


async def add(call: Call) -> Row:
    await call.kafka(create_acls, _bindings(call.body.rows))
    return {"added": len(call.body.rows)}


async def remove(call: Call) -> Row:
    """Exactly these; answers with those that existed."""
    removed = await call.kafka(delete_acls, [AclFilter.of(acl) for acl in _bindings(call.body.rows)])
    return {"removed": [msgspec.to_builtins(row_of(acl)) for acl in removed]}


def _bindings(rows: Sequence[AclRow]) -> list[AclBinding]:
    try:
        return [binding_of(row) for row in rows]
    except KeyError as wrong:
        raise bad_request(f"there is no {str(wrong).strip(chr(39)).lower()}") from wrong


async def explained(call: Call) -> Row:
    """Of the query: principal, operation, resource, name, host."""
    query = call.query
    if ":" not in query.get("principal", ""):
        raise bad_request("a principal has the form User:name")
    try:
        operation = operation_named(query.get("operation", ""))
        resource = ResourceType[query.get("resource", "").upper()]
    except WrongOptions as wrong:
        raise bad_request(str(wrong)) from wrong
    except KeyError as wrong:
        raise bad_request("resource is topic, group, cluster or transactional_id") from wrong
    if operation is Operation.ALL:
        raise bad_request("ask about one operation")
    asked = Question(query["principal"], operation, resource, query.get("name", ""), query.get("host") or "*")
    found: Any = await call.kafka(list_acls, [AclFilter(resource_type=resource)])
    return explain(found, asked)


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/acls", handler=acls, needs=on_cluster(Operation.DESCRIBE)),
    Route(method="GET", path="/acls/explain", handler=explained, needs=on_cluster(Operation.DESCRIBE)),
    Route(
        method="POST",
        path="/acls/preview",
        handler=preview,
        needs=on_cluster(Operation.DESCRIBE),
        body=Recipe,
    ),
    Route(
        method="POST", path="/acls", handler=add, needs=on_cluster(Operation.ALTER), changes=True, body=Rows
    ),
    Route(
        method="DELETE",
        path="/acls",
        handler=remove,
        needs=on_cluster(Operation.ALTER),
        changes=True,
        body=Rows,
    ),
)

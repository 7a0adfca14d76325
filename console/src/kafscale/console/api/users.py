"""Users of SASL/SCRAM: list, add, change a password, remove. A password is in no answer and in no log."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client
from kafscale.client.users import list_users, mechanisms_of, remove_user, store_password
from kafscale.console.answers import Problem, Row, not_found, page_of
from kafscale.console.rights import on_cluster
from kafscale.console.routes import Call, Route

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: Final[tuple[Mechanism, ...]] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
Iterations = Annotated[int, msgspec.Meta(ge=4_096, le=16_384)]


class Password(msgspec.Struct, forbid_unknown_fields=True):
    password: Text
    iterations: Iterations = 4_096

    def __repr__(self) -> str:
        return "Password(…)"


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    user: Text
    password: Text
    mechanisms: Annotated[list[Mechanism], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: list(MECHANISMS)
    )
    iterations: Iterations = 4_096

    def __repr__(self) -> str:
        return f"NewUser({self.user!r}, …)"


async def users(call: Call) -> Row:
    """A row for each user: mechanisms, iterations (of the first). `troubles`: sentences of those with an error."""
    found = await call.kafka(list_users)
    rows: dict[str, Row] = {}
    for each in found.rows:
        row = rows.setdefault(
            each["user"], {"user": each["user"], "mechanisms": [], "iterations": each["iterations"]}
        )
        row["mechanisms"].append(each["mechanism"])
    page = page_of(list(rows.values()), call.query, columns=("user", "iterations"), search="user")
    return page | {"troubles": [str(trouble) for trouble in found.troubles]}


async def add(call: Call) -> Row:
    """409 if the user exists."""
    asked: Any = call.body

    def work(client: Client) -> bool:
        if mechanisms_of(client, asked.user):
            return False
        store_password(client, asked.user, asked.password, asked.mechanisms, asked.iterations)
        return True

    if not await call.kafka(work):
        sentence = f"user '{asked.user}' exists already; change the password instead"
        raise Problem(HTTPStatus.CONFLICT, "conflict", sentence)
    return {"user": asked.user}


async def change_password(call: Call) -> Row:
    """For the mechanisms that the user has."""
    name, asked = call.path["user"], call.body

    def work(client: Client) -> list[str]:
        found = mechanisms_of(client, name)
        store_password(client, name, asked.password, found, asked.iterations)
        return found

    found = await call.kafka(work)
    if not found:
        raise not_found(f"user '{name}' does not exist")
    return {"mechanisms": found}


async def remove(call: Call) -> Row:
    """ACLs and quotas of the user stay."""
    return {"mechanisms": await call.kafka(remove_user, call.path["user"], MECHANISMS)}


_ALTER: Final = on_cluster(Operation.ALTER)
ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/users", handler=users, needs=on_cluster(Operation.DESCRIBE)),
    Route(method="POST", path="/users", handler=add, needs=_ALTER, changes=True, body=NewUser),
    Route(
        method="PATCH",
        path="/users/{user}",
        handler=change_password,
        needs=_ALTER,
        changes=True,
        body=Password,
    ),
    Route(method="DELETE", path="/users/{user}", handler=remove, needs=_ALTER, changes=True),
)

"""Login, and what the page must know before it shows anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from kafscale.console.answers import Row, bad_request
from kafscale.console.logins import Mode
from kafscale.console.rights import Admits
from kafscale.console.routes import Call, Route

NAME_CHARS_MAX: Final = 1_024


class Credentials(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str

    def __repr__(self) -> str:
        return "Credentials(…)"


async def me(call: Call) -> Row:
    """Who asks, and what this console can do. Without a login: only that a login is needed."""
    settings, logins = call.site.settings, call.site.logins
    known: Row = {"mode": logins.entrance.mode.value, "read_only": settings.read_only, "user": None}
    if call.person is None:
        return known | {"logged_in": False}
    return known | {
        "logged_in": True,
        "user": call.person.user,
        "mechanism": call.person.mechanism,
        "bootstrap": logins.entrance.bootstrap,
        "direct": call.site.stores is not None,
        "registry": call.site.schemas is not None,
    }


async def log_in(call: Call) -> Row:
    asked: Any = call.body
    if call.site.logins.entrance.mode is not Mode.PERSONAL:
        raise bad_request("this console has no logins: everyone acts as the same user")
    if not asked.user or not asked.password or max(len(asked.user), len(asked.password)) > NAME_CHARS_MAX:
        raise bad_request("give a user and a password")
    call.new_session = await call.site.logins.begin(asked.user, asked.password)
    if call.session_id is not None:
        call.site.logins.sessions.end(call.session_id)
    return {"user": asked.user}


async def log_out(call: Call) -> Row:
    if call.session_id is not None:
        call.site.logins.sessions.end(call.session_id)
    call.new_session = ""
    return {}


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/me", handler=me, needs=Admits.ANYBODY),
    Route(method="POST", path="/login", handler=log_in, needs=Admits.ANYBODY, body=Credentials),
    Route(method="DELETE", path="/login", handler=log_out, needs=Admits.ANYBODY),
)

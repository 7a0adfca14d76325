"""Every route of the console, asked by people with different rights, and what each must be answered.

The rows are those of `kafscale.console.table`, so a new route is tested without another line.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from kafscale.access.acl import Operation, ResourceType
from kafscale.console.rights import Admits, Needs
from kafscale.console.routes import API, Route
from kafscale.console.table import ROUTES

ANSWER_TIMEOUT_S: Final = 60.0
OTHER_PARAMETERS: Final = "0"
"""Of a path: a number fits partitions and offsets, and is an unknown name elsewhere."""
REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    """Empty for an answer that goes on."""


class Person:
    """A browser's requests to a console. Without `log_in`, nobody's."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._cookie = ""

    def log_in(self, user: str, password: str) -> int:
        """The status."""
        answer, cookie = self._ask("POST", f"{API}/login", {"user": user, "password": password})
        self._cookie = cookie.partition(";")[0]
        return answer.status

    def ask(self, method: str, path: str) -> Answer:
        return self._ask(method, path, {})[0]

    def change(self, method: str, path: str, body: object) -> Answer:
        return self._ask(method, path, body)[0]

    def _ask(self, method: str, path: str, body: object) -> tuple[Answer, str]:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=ANSWER_TIMEOUT_S)
        headers = {"Cookie": self._cookie}
        if method != "GET":
            headers |= {"Origin": self._url, "Content-Type": "application/json", "X-KafScale-Console": "1"}
        try:
            connection.request(method, path, None if method == "GET" else json.dumps(body), headers)
            response = connection.getresponse()
            whole = response.getheader("Content-Length") is not None
            return (
                Answer(response.status, response.read() if whole else b""),
                response.getheader("Set-Cookie", ""),
            )
        finally:
            connection.close()


def guarded() -> Iterator[Route]:
    """All routes for which one must have logged in."""
    return (row for row in ROUTES if row.needs is not Admits.ANYBODY)


def path_of(row: Route, **names: str) -> str:
    """With these path parameters, by the names of the row."""
    parts = (
        quote(names.get(part[1:-1], OTHER_PARAMETERS), safe="") if part.startswith("{") else part
        for part in row.path.split("/")
    )
    return API + "/".join(parts)


class Who(Enum):
    NOBODY = "nobody"
    OWNER = "somebody with rights on the topic and the group"
    FOREIGNER = "somebody without rights on the topic and the group"
    ADMIN = "the administrator"


def complaint(row: Route, who: Who, answer: Answer, rights: frozenset[Operation]) -> str | None:
    """None if the status is what it must be. `rights`: of OWNER on the topic and the group of the path; nobody but
    ADMIN has a right on the cluster. A route that names no resource, and a change, are left to the front door."""
    refused = answer.status in REFUSED
    match who:
        case Who.NOBODY:
            good = answer.status == HTTPStatus.UNAUTHORIZED
        case Who.OWNER if isinstance(row.needs, Needs):
            named = row.needs.kind is not ResourceType.CLUSTER
            good = refused != (named and row.needs.operation in rights) or row.changes
        case Who.FOREIGNER if isinstance(row.needs, Needs):
            good = answer.status == HTTPStatus.FORBIDDEN
        case Who.ADMIN:
            good = not refused
        case _:
            good = True
    if good and answer.status != HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    return f"{row.method} {row.path} for {who.value}: {answer.status} {answer.body[:300]!r}"

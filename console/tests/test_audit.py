"""Each direct read is one line of the audit log: who, from where, what; and no answer before its line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp
import orjson
import pytest
from kafscale.client.security import OPEN
from kafscale.console import audit, server, table
from kafscale.console.answers import Lines, Row, forbidden
from kafscale.console.api import batch, cost, groups, search, sql, storage
from kafscale.console.audit import TEXT_CHARS_MAX, Audit
from kafscale.console.logins import Entrance
from kafscale.console.rights import Admits
from kafscale.console.routes import API, Call, Route
from kafscale.console.settings import ConsoleSettings
from kafscale.runtime.log_writer import LogWriter


class Log(LogWriter):
    """Instead of standard error."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def write(self, line: bytes) -> None:
        self.lines.append(orjson.loads(line))

    def flush(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(audit, "LogWriter", lambda: log)
    return log


async def test_a_line_is_written_before_the_answer_and_not_for_a_refusal(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    seen: list[int] = []

    async def read(call: Call) -> Lines:
        if call.query.get("q") == "secret":
            raise forbidden("not this")

        async def items() -> AsyncGenerator[Row, None]:
            seen.append(len(log.lines))
            yield {"n": 1}

        return Lines(items())

    row = Route(
        method="GET",
        path="/read/{topic}",
        handler=read,
        needs=Admits.LOGIN,
        audit=lambda call: {"text": call.query["q"]},
    )
    monkeypatch.setattr(table, "ROUTES", (*table.ROUTES, row))
    async with (
        server.serving(Entrance("127.0.0.1:1", OPEN), ConsoleSettings(port=0)) as url,
        aiohttp.ClientSession(url) as session,
    ):
        for text in ("select 1 -- \x1b[31m", "secret", "x" * (TEXT_CHARS_MAX + 1)):
            async with session.get(f"{API}/read/orders", params={"q": text}) as answer:
                assert answer.status == (403 if text == "secret" else 200)
                await answer.read()
    assert seen == [1, 2]
    first, second = log.lines
    assert (first["event"], first["logger"], first["page"]) == (
        "console read",
        "kafscale.audit",
        "/read/{topic}",
    )
    assert (first["principal"], first["address"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert first["text"].startswith("select 1 -- ")
    assert "\x1b" not in first["text"]
    assert second["text"] == "x" * TEXT_CHARS_MAX


def asked(module: Any, path: str) -> Callable[[Any], dict[str, str]]:
    [row] = [row for row in module.ROUTES if row.path == path and not row.changes]
    assert row.audit is not None
    found: Callable[[Any], dict[str, str]] = row.audit
    return found


def call_of(body: Any = None, **query: str) -> Any:
    """Of a console that reads the stores."""
    site = type("Site", (), {"stores": object()})
    return type("Asked", (), {"body": body, "query": query, "path": {"topic": "orders"}, "site": site})


def test_a_line_has_the_question() -> None:
    assert asked(sql, "/sql")(call_of(sql.Query("select 1"))) == {"text": "select 1"}
    search_of = asked(search, "/topics/{topic}/search")
    assert search_of(call_of(where="offset > 3")) == {"topic": "orders", "condition": "offset > 3"}
    assert search_of(call_of(text="x")) == {"topic": "orders", "condition": "x"}
    by_consumer = call_of(text="x")
    by_consumer.site.stores = None
    assert search_of(by_consumer) is None
    of_batch = call_of()
    of_batch.path |= {"partition": "0", "offset": "7"}
    batch_of = asked(batch, "/topics/{topic}/records/{partition}/{offset}/batch")
    assert batch_of(of_batch) == {"topic": "orders", "partition": "0", "offset": "7"}
    damage = asked(storage, "/damage")
    assert damage(call_of(storage.Check())) == {"topics": "all"}
    assert damage(call_of(storage.Check(["a", "b"]))) == {"topics": "a, b"}
    for module, path in ((storage, "/storage"), (cost, "/cost"), (cost, "/health")):
        assert asked(module, path)(call_of()) == {}


def test_a_look_at_the_groups_is_a_line_only_if_the_console_reads_the_stores() -> None:
    """Without them all is asked at the front door, which has its own audit log."""
    read: Any = asked(groups, "/groups")
    call = call_of(topic="orders")
    call.path = {}
    assert read(call) == {"topic": "orders"}
    call.path, call.query = {"group": "billing"}, {"page": "2"}
    assert asked(groups, "/groups/{group}")(call) == {"group": "billing"}
    call.site.stores = None
    assert read(call) is None


def test_a_line_names_the_person() -> None:
    log = Log()
    Audit(log).read("/sql", "alice", "192.0.2.7", {"text": "select 1"})
    [line] = log.lines
    assert (line["principal"], line["address"], line["text"]) == ("User:alice", "192.0.2.7", "select 1")

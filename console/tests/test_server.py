"""The server over a socket: guard, login and rights, and what every answer carries. Kafka is a stand-in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import pytest
from kafscale.access.acl import Operation, ResourceType
from kafscale.access.protocol import SecurityProtocol
from kafscale.client.security import OPEN
from kafscale.console import server, table
from kafscale.console.answers import Lines, Problem, Row, bad_request
from kafscale.console.logins import Entrance, Login
from kafscale.console.rights import Admits, Resource, on_cluster, on_topic
from kafscale.console.routes import API, Call, Route, check_names
from kafscale.console.server import CALLS_MAX, serving
from kafscale.console.settings import ConsoleSettings
from kafscale.operations.target import Target
from yarl import URL

OPEN_CLUSTER = Entrance("127.0.0.1:1", OPEN)
HELD: dict[Resource, frozenset[Operation]] = {
    (ResourceType.TOPIC, "orders"): frozenset({Operation.DESCRIBE}),
}


class Change(msgspec.Struct, forbid_unknown_fields=True):
    to: int


async def _echo(call: Call) -> Row:
    return {"path": dict(call.path), "body": None if call.body is None else call.body.to}


async def _count(call: Call) -> Lines:
    async def items() -> AsyncGenerator[Row, None]:
        yield {"n": 1}
        raise bad_request("the end")

    return Lines(items())


async def _bug(_: Call) -> Row:
    raise KeyError("<script>secret</script>")


async def _wait(_: Call) -> Row:
    await asyncio.Event().wait()
    return {}


ROUTES = (
    *table.ROUTES,
    Route(method="GET", path="/wait", handler=_wait, needs=Admits.LOGIN),
    Route(method="POST", path="/wait", handler=_wait, needs=Admits.LOGIN, changes=True),
    Route(method="GET", path="/echo/{topic}", handler=_echo, needs=on_topic(Operation.DESCRIBE)),
    Route(method="GET", path="/read/{topic}", handler=_echo, needs=on_topic(Operation.READ)),
    Route(method="GET", path="/all", handler=_echo, needs=on_cluster(Operation.DESCRIBE)),
    Route(method="GET", path="/lines", handler=_count, needs=Admits.LOGIN),
    Route(method="GET", path="/bug", handler=_bug, needs=Admits.LOGIN),
    Route(method="POST", path="/change", handler=_echo, needs=Admits.LOGIN, changes=True, body=Change),
)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def learn(self: Login, resources: Iterable[Resource]) -> None:
        self.rights.learn({each: HELD.get(each, frozenset()) for each in resources}, 0)

    def allows(self: Login, resource: Resource, operation: Operation) -> bool:
        return self.rights.allows(resource, operation, 0)

    async def run(self: Login, *_: Any) -> Any:
        return None

    monkeypatch.setattr(table, "ROUTES", ROUTES)
    monkeypatch.setattr(Login, "learn", learn)
    monkeypatch.setattr(Login, "allows", allows)
    monkeypatch.setattr(Login, "run", run)


@asynccontextmanager
async def console(entrance: Entrance = OPEN_CLUSTER, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    settings = ConsoleSettings(port=0, **more)
    async with serving(entrance, settings) as url, aiohttp.ClientSession(url) as session:
        yield session


def changing(session: aiohttp.ClientSession) -> dict[str, str]:
    origin = str(session._base_url).rstrip("/")
    return {"Origin": origin, "X-KafScale-Console": "1", "Content-Type": "application/json"}


async def status(session: aiohttp.ClientSession, path: str, **more: Any) -> int:
    async with session.get(API + path, **more) as answer:
        return answer.status


async def test_a_route_asks_for_the_right_of_its_row() -> None:
    async with console() as session:
        assert await status(session, "/echo/orders") == 200
        assert await status(session, "/read/orders") == 403
        assert await status(session, "/echo/secret") == 403
        assert await status(session, "/all") == 403


async def test_without_a_login_only_the_login_is_answered() -> None:
    personal = Entrance("127.0.0.1:1", replace(OPEN, protocol=SecurityProtocol.SASL_PLAINTEXT))
    async with console(personal, target=Target(None, None)) as session:
        for row in ROUTES:
            path = re.sub(r"\{\w+\}", "1", row.path)
            async with session.request(row.method, API + path, json={}, headers=changing(session)) as answer:
                open_to_all = row.needs is Admits.ANYBODY
                assert (answer.status == 401) is not open_to_all, (row.path, answer.status)


async def test_a_read_only_console_has_no_route_that_changes() -> None:
    async with (
        console() as session,
        session.post(f"{API}/change", data=b'{"to": 7}', headers=changing(session)) as answer,
    ):
        assert (await answer.json())["body"] == 7
    async with console(read_only=True) as session:
        for row in ROUTES:
            if row.changes:
                path = re.sub(r"\{\w+\}", "1", row.path)
                async with session.request(
                    row.method, API + path, data=b"{}", headers=changing(session)
                ) as answer:
                    assert answer.status == 404


@pytest.mark.parametrize("path", ["/echo/a%00b", "/echo/orders?group=a%00b"])
async def test_a_name_with_the_character_0_is_refused(path: str) -> None:
    """confluent-kafka would end it there, and so delete another topic than the page names."""
    async with console() as session, session.get(URL(API + path, encoded=True)) as answer:
        assert answer.status == 400
        assert "character 0" in (await answer.json())["sentence"]


@pytest.mark.parametrize("body", ["a\0", ["x", "a\0"], {"a\0": 1}, {"x": [{"y": "\0"}]}])
def test_a_name_in_a_body_has_no_character_0(body: object) -> None:
    check_names({"x": [1, None, "a\\0"]})
    with pytest.raises(Problem, match="character 0"):
        check_names(body)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"to": "x"}', b'{"to": 1, "more": 2}', b"\xff", b"[" * 100_000]
)
async def test_a_wrong_body_is_a_sentence(body: bytes) -> None:
    async with (
        console() as session,
        session.post(f"{API}/change", data=body, headers=changing(session)) as answer,
    ):
        assert answer.status == 400
        assert set(await answer.json()) == {"error", "sentence"}


async def test_an_answer_that_goes_on_ends_with_its_problem() -> None:
    async with console() as session, session.get(f"{API}/lines") as answer:
        lines = [msgspec.json.decode(line) for line in (await answer.text()).splitlines()]
    assert lines == [{"n": 1}, {"error": "bad_request", "sentence": "the end"}]


async def test_a_change_without_an_answer_in_time_may_still_take_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "CALL_TIMEOUT_S", 0.0)
    async with console() as session:
        async with session.post(f"{API}/wait", headers=changing(session)) as answer:
            changed = answer.status, (await answer.json())["error"]
        async with session.get(f"{API}/wait") as answer:
            read = answer.status, (await answer.json())["error"]
    assert (changed, read) == ((503, "outcome_unknown"), (503, "no_answer"))


async def test_a_bug_shows_nothing_of_itself_and_ends_nothing() -> None:
    async with console() as session:
        async with session.get(f"{API}/bug") as answer:
            assert answer.status == 500
            assert b"secret" not in await answer.read()
        assert await status(session, "/echo/orders") == 200


async def test_every_answer_has_the_headers_and_no_cors() -> None:
    async with console() as session:
        for path in (
            "/",
            "/topics/x",
            "/assets/app.js",
            "/assets/none.js",
            f"{API}/me",
            f"{API}/none",
            f"{API}/all",
        ):
            async with session.get(path) as answer:
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        assert await status(session, "/me", headers={"Host": "evil.example"}) == 403


@pytest.mark.parametrize(
    "path",
    ["/assets/../server.py", "/assets/%2e%2e/server.py", "/assets//etc/passwd", "/assets/vendor", "/assets/"],
)
async def test_no_path_leads_out_of_the_page_s_files(path: str) -> None:
    async with console() as session, session.get(path) as answer:
        body = await answer.read()
        assert answer.status == 404 or body.startswith(b"<!doctype html>")


async def test_one_login_has_a_bound_of_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as session:
        calls: list[Login] = []

        def remember(self: Login, *_: Any) -> bool:
            calls.append(self)
            return True

        monkeypatch.setattr(Login, "allows", remember)
        assert await status(session, "/echo/orders") == 200
        calls[0].calls = CALLS_MAX
        assert await status(session, "/echo/orders") == 429
        calls[0].calls = 0
        assert await status(session, "/echo/orders") == 200

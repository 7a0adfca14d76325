"""What the routes that read etcd and the store ask for a login: only what the front door lets it see."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafscale.access.acl import Operation, ResourceType
from kafscale.client.groups import list_all_groups
from kafscale.client.security import OPEN
from kafscale.console.answers import Problem
from kafscale.console.api import search, sql, storage
from kafscale.console.logins import Entrance, Logins
from kafscale.console.rights import KnownRights, Resource
from kafscale.console.routes import Call, Site
from kafscale.console.settings import ConsoleSettings

READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
HELD: Mapping[Resource, frozenset[Operation]] = {
    (TOPIC, "orders"): frozenset({READ, DESCRIBE}),
    (TOPIC, "payments"): frozenset({READ, DESCRIBE, Operation.DESCRIBE_CONFIGS}),
    (TOPIC, "payroll"): frozenset({DESCRIBE}),
    (GROUP, "billing"): frozenset({DESCRIBE}),
}


class FrontDoor:
    """A login whose rights are HELD."""

    user = "alice"

    def __init__(self) -> None:
        self.rights = KnownRights()
        self.asked: list[Resource] = []

    async def run(self, work: Callable[..., Any], *_: Any) -> Any:
        if work is list_all_groups:
            return [{"group": "billing"}, {"group": "foreign"}]
        return ["orders", "payments", "payroll"]

    async def learn(self, resources: Iterable[Resource]) -> None:
        self.asked += resources

    async def learn_groups(self, listed: Iterable[str]) -> None:
        await self.learn((GROUP, name) for name in listed)

    def allows(self, resource: Resource, operation: Operation) -> bool:
        assert resource in self.asked
        return operation in HELD.get(resource, ())


@dataclass
class Children:
    questions: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    async def ask(self, session: str, question: dict[str, Any], **_: Any) -> AsyncGenerator[Any, None]:
        self.questions.append(question)
        self.sessions.append(session)

        async def nothing() -> AsyncGenerator[Any, None]:
            return
            yield

        return nothing()


def call_of(body: Any = None, *, path: Mapping[str, str] = {}, **query: str) -> tuple[Call, Children]:
    children = Children()
    site = Site(
        settings=ConsoleSettings(),
        logins=Logins(Entrance("127.0.0.1:1", OPEN)),
        stores=cast(Any, SimpleNamespace(children=children)),
    )
    call = Call(
        site=site,
        path=path,
        query=query,
        session_id="chosen by the browser",
        peer="192.0.2.7",
        person=cast(Any, FrontDoor()),
        body=body,
    )
    return call, children


async def test_sql_gets_the_topics_that_the_login_may_read_and_no_groups_unless_it_names_them() -> None:
    call, children = call_of(sql.Query("select 1 from records"))
    await sql.sql(call)
    (question,) = children.questions
    assert (question["topics"], question["configs"], question["groups"]) == (
        ["orders", "payments"],
        ["payments"],
        [],
    )
    call, children = call_of(sql.Query("from COMMITS"))
    await sql.sql(call)
    assert children.questions[0]["groups"] == ["billing"]


async def test_without_logins_an_address_has_one_turn_whatever_cookies_it_sends() -> None:
    call, children = call_of(sql.Query("select 1"))
    await sql.sql(call)
    assert children.sessions == ["192.0.2.7"]


@pytest.mark.parametrize("text", ["", "  \n", "x" * (sql.TEXT_CHARS_MAX + 1)])
async def test_a_query_has_a_text_of_bounded_length(text: str) -> None:
    call, children = call_of(sql.Query(text))
    with pytest.raises(Problem, match="give a query"):
        await sql.sql(call)
    assert children.questions == []


async def test_a_search_needs_read_anew() -> None:
    call, children = call_of(path={"topic": "orders"}, text="x", since="-1h", partition="2")
    await search.search(call)
    assert (children.questions[0]["partition"], children.questions[0]["text"]) == (2, "x")
    call, children = call_of(path={"topic": "payroll"}, text="x")
    with pytest.raises(Problem, match="may no longer read"):
        await search.search(call)
    assert children.questions == []


@pytest.mark.parametrize(
    "query", [{}, {"text": "a", "where": "b"}, {"where": "b", "since": "soon"}, {"text": "a", "cursor": "!"}]
)
async def test_a_search_that_says_too_little_or_too_much_is_a_sentence(query: dict[str, str]) -> None:
    call, children = call_of(path={"topic": "orders"}, **query)
    with pytest.raises(Problem):
        await search.search(call)
    assert children.questions == []


async def test_a_check_is_for_topics_that_the_login_sees() -> None:
    call, children = call_of(storage.Check(["payroll", "payroll"]))
    await storage.damage(call)
    assert children.questions[0]["topics"] == ["payroll"]
    call, children = call_of(storage.Check(["secret"]))
    with pytest.raises(Problem, match="sees no topic 'secret'"):
        await storage.damage(call)
    assert children.questions == []
    call, children = call_of(storage.Check())
    await storage.damage(call)
    assert children.questions[0] == {
        "kind": "damage",
        "topics": None,
        "seen": ["orders", "payments", "payroll"],
    }

"""The life of a tail: its room, its thread, its login."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import pytest
from kafscale.client.admin_client import KafkaTrouble
from kafscale.client.security import OPEN
from kafscale.console.answers import Problem, Row
from kafscale.console.api import tail as module
from kafscale.console.logins import Entrance, Login, Logins
from kafscale.console.records import cursor
from kafscale.console.records.merge import Span
from kafscale.console.records.tail import TAILS_MAX, Turn
from kafscale.console.routes import Call, Site
from kafscale.console.settings import ConsoleSettings

DEADLINE_S = 30


class Following:
    """Stands in for the thread's consumer: a turn without records each time it is asked."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.turns = 0
        self.last: Exception | None = None

    def __call__(
        self, _: Any, __: str, at: dict[int, int], *, committed: bool, stop: threading.Event
    ) -> Iterator[Turn]:
        try:
            while not stop.is_set():
                self.turns += 1
                if self.turns == 3 and self.last is not None:
                    raise self.last
                yield Turn({number: offset + self.turns for number, offset in at.items()})
        finally:
            self.ended.set()


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> Following:
    async def client(_: Login) -> None:
        return None

    async def run(_: Login, *__: Any) -> dict[int, Span]:
        return {0: Span(2, 10)}

    found = Following()
    monkeypatch.setattr(module, "follow", found)
    monkeypatch.setattr(Login, "client", client)
    monkeypatch.setattr(Login, "run", run)
    return found


def call(site: Site, **query: str) -> Call:
    return Call(
        site=site,
        path={"topic": "orders"},
        query=query,
        session_id=None,
        peer="",
        person=Login(site.logins.entrance, None, None),
    )


@pytest.fixture
def site() -> Site:
    return Site(settings=ConsoleSettings(), logins=Logins(Entrance("127.0.0.1:1", OPEN)), stores=None)


async def begun(asked: Call) -> AsyncGenerator[Row, None]:
    return cast(AsyncGenerator[Row, None], (await module.tail(asked)).items)


async def test_a_tail_begins_at_the_end_or_at_its_cursor_and_a_reader_who_leaves_ends_it(
    site: Site, following: Following
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        lines = await begun(call(site))
        assert cursor.from_text((await anext(lines))["at"]) == {0: 10}
        assert cursor.from_text((await anext(lines))["at"]) == {0: 11}
        await lines.aclose()
        assert following.ended.is_set()
        lines = await begun(call(site, cursor=cursor.to_text({0: 5})))
        assert cursor.from_text((await anext(lines))["at"]) == {0: 5}
        await lines.aclose()


async def test_a_slow_reader_holds_its_tail_back(site: Site, following: Following) -> None:
    """What comes meanwhile stays in the topic: one turn waits, one is in hand."""
    async with asyncio.timeout(DEADLINE_S):
        lines = await begun(call(site))
        await anext(lines)
        await anext(lines)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert following.turns <= 3
        await lines.aclose()


async def test_a_tail_ends_with_its_login(site: Site, following: Following) -> None:
    async with asyncio.timeout(DEADLINE_S):
        asked = call(site)
        lines = await begun(asked)
        await anext(lines)
        asked.login.close()
        with pytest.raises(Problem, match="log in again"):
            await anext(lines)
        assert following.ended.is_set()


async def test_a_tail_that_kafka_refuses_ends_with_the_sentence(site: Site, following: Following) -> None:
    following.last = KafkaTrouble("topic 'orders' is gone")
    async with asyncio.timeout(DEADLINE_S):
        lines = await begun(call(site))
        with pytest.raises(Problem, match="topic 'orders' is gone"):
            async for _ in lines:
                pass


async def test_one_tail_too_many_is_refused_and_an_ended_one_makes_room(
    site: Site, following: Following
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        open_tails = [await begun(call(site)) for _ in range(TAILS_MAX)]
        for each in open_tails:
            await anext(each)
            await anext(each)  # of its own thread
        with pytest.raises(Problem, match="16 tails are open"):
            await anext(await begun(call(site)))
        await open_tails.pop().aclose()
        open_tails.append(await begun(call(site)))
        await anext(open_tails[-1])
        for each in open_tails:
            await each.aclose()

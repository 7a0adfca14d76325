"""Scrapers share a text, and none gets one that is older than its request."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.runtime.http import REST_S_MAX, Scrapes, rest_s


class Made:
    """Makes a number when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Semaphore(0)
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.gate.acquire()
        if self.failure is not None:
            raise self.failure
        return number


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.runtime.http.REST_FACTOR", 0)


async def test_one_text_is_made_at_a_time_and_those_who_wait_share_the_next() -> None:
    make = Made()
    scrapes = Scrapes(make)
    first = asyncio.ensure_future(scrapes.newest())
    await settled()
    others = [asyncio.ensure_future(scrapes.newest()) for _ in range(50)]
    await settled()
    assert make.begun == 1
    make.gate.release()
    assert await first == 1
    make.gate.release()
    assert await asyncio.gather(*others) == [2] * 50, "they asked after the first had begun"
    assert make.begun == 2


async def test_a_scraper_that_leaves_and_a_text_that_fails_hold_up_nobody() -> None:
    make = Made()
    scrapes = Scrapes(make)
    waiting = [asyncio.ensure_future(scrapes.newest()) for _ in range(3)]
    await settled()
    waiting[0].cancel()
    await settled()
    make.failure = RuntimeError("our bug")
    make.gate.release()
    with pytest.raises(RuntimeError, match="our bug"):
        await waiting[1]
    make.failure = None
    make.gate.release()
    assert await waiting[2] == 3


def test_texts_take_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert rest_s(0.01) == pytest.approx(0.09)
    assert rest_s(5.0) == REST_S_MAX


async def test_the_next_text_waits_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    make, slept = Made(), list[float]()
    scrapes, real = Scrapes(make), asyncio.sleep
    make.gate = asyncio.Semaphore(2)
    monkeypatch.setattr("kafscale.runtime.http.rest_s", lambda _: 1_000.0)

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        await real(0)

    monkeypatch.setattr("kafscale.runtime.http.asyncio.sleep", sleep)
    assert [await scrapes.newest(), await scrapes.newest()] == [1, 2]
    assert slept[0] == 0
    assert slept[1] > 900

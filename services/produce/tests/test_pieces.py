"""Long work on the event loop leaves it to others most of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter

import pytest
from kafscale.produce.pieces import REST_SHARE, Pieces

PIECE_S = 0.002


async def test_works_take_turns_and_the_loop_rests_after_each_piece() -> None:
    pieces = Pieces()
    ended_s = 0.0
    rests, names, turns = [], [], 0

    def work(name: str, count: int) -> Iterator[None]:
        nonlocal ended_s
        for _ in range(count):
            rests.append(perf_counter() - ended_s)
            names.append((name, turns))
            until_s = perf_counter() + PIECE_S
            while perf_counter() < until_s:
                pass
            ended_s = perf_counter()
            yield

    async def bystander() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    watching = asyncio.create_task(bystander())
    await asyncio.gather(pieces.run(work("long", 12)), pieces.run(work("short", 3)))
    watching.cancel()
    assert [name for name, _ in names[:6]].count("short") == 3, (
        "work of few pieces is not behind work of many"
    )
    assert min(rests) > REST_SHARE * PIECE_S / 2
    seen = [turn for _, turn in names]
    assert all(after - before > 1 for before, after in zip(seen, seen[1:], strict=False))


async def test_what_a_piece_raises_ends_its_work_and_no_other() -> None:
    pieces = Pieces()

    def broken() -> Iterator[None]:
        yield
        raise ValueError("a piece failed")

    async def fails() -> None:
        with pytest.raises(ValueError, match="a piece failed"):
            await pieces.run(broken())

    await asyncio.gather(fails(), pieces.run(iter([None] * 3)))
    async with asyncio.timeout(10):
        await pieces.run(iter(()))

"""Work on records beside the event loop: a long one delays others by a piece at most, and a lane has a limit."""

import asyncio
import itertools
import threading

import pytest
from kafscale.fetch.batch_thread import PIECE_S, BatchThread, Lane, OutOfTime
from kafscale.wire.buffers import Steps

SOON_S = 0.05
LATER_S = 60.0


@pytest.fixture
def thread() -> BatchThread:
    """Every step takes a whole piece's time."""
    ticks = itertools.count()
    return BatchThread(now_s=lambda: next(ticks) * PIECE_S)


def counting(steps: int, done: list[int]) -> Steps[int]:
    for _ in range(steps):
        done.append(steps)
        yield
    return steps


def endless(begun: list[int]) -> Steps[int]:
    begun.append(1)
    while True:
        yield


def later() -> float:
    return asyncio.get_running_loop().time() + LATER_S


async def test_a_short_work_ends_while_a_long_one_goes_on(thread: BatchThread) -> None:
    done: list[int] = []
    long = asyncio.create_task(thread.finish(counting(1_000, done)))
    while not done:
        await asyncio.sleep(0)
    assert await thread.finish(counting(3, done)) == 3
    assert not long.done()
    last = len(done) - 1 - done[::-1].index(3)
    assert done[:last].count(1_000) < 12, "it waited for more than a piece of the other at each of its own"
    assert await long == 1_000


async def test_the_loop_has_its_turn_between_pieces(thread: BatchThread) -> None:
    done: list[int] = []
    seen: list[int] = []
    work = asyncio.create_task(thread.finish(counting(50, done)))
    while not work.done():
        seen.append(len(done))
        await asyncio.sleep(0)
    assert len(set(seen)) > 40


async def test_many_quick_steps_are_one_piece() -> None:
    thread = BatchThread(now_s=lambda: 0.0)
    assert await thread.finish(counting(1_000, [])) == 1_000
    assert thread.pieces == 1


async def test_a_lane_has_so_many_under_way_and_the_rest_in_line(thread: BatchThread) -> None:
    begun: list[int] = []
    lane = Lane(thread, at_once=2)
    tasks = [asyncio.create_task(lane.finish(endless(begun), until_s=later())) for _ in range(5)]
    other = Lane(thread, at_once=1)
    assert await other.finish(counting(20, []), until_s=later()) == 20
    assert len(begun) == 2
    tasks[0].cancel()
    assert await other.finish(counting(20, []), until_s=later()) == 20
    assert len(begun) == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_work_has_a_deadline_in_line_and_under_way(thread: BatchThread) -> None:
    lane = Lane(thread, at_once=1)
    soon = asyncio.get_running_loop().time() + SOON_S
    ends = await asyncio.gather(
        *(lane.finish(endless([]), until_s=soon) for _ in range(2)), return_exceptions=True
    )
    assert [type(end) for end in ends] == [OutOfTime, OutOfTime]
    assert await lane.finish(counting(3, []), until_s=later()) == 3


async def test_a_step_that_is_long_outlives_its_client_and_nothing_else(thread: BatchThread) -> None:
    begun, free = threading.Event(), threading.Event()

    def long() -> Steps[None]:
        begun.set()
        assert free.wait(LATER_S)
        yield

    leaves = asyncio.create_task(thread.finish(long()))
    await asyncio.to_thread(begun.wait, LATER_S)
    leaves.cancel()
    next_one = asyncio.create_task(thread.finish(counting(3, [])))
    await asyncio.sleep(0)
    free.set()
    assert await next_one == 3


async def test_what_the_work_raises_is_raised(thread: BatchThread) -> None:
    def fails() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await thread.finish(fails())
    assert await thread.finish(counting(1, [])) == 1


async def test_a_lane_for_large_work_rests_after_each_piece(
    thread: BatchThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    real = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        rests.append(delay_s)
        await real(0)

    monkeypatch.setattr("kafscale.fetch.batch_thread.asyncio.sleep", sleep)
    assert await Lane(thread, at_once=1).finish(counting(20, []), until_s=later()) == 20
    assert rests == []
    before = thread.pieces
    assert await Lane(thread, at_once=1, rests=True).finish(counting(20, []), until_s=later()) == 20
    assert rests == [PIECE_S] * (thread.pieces - before - 1)

"""A task that handles the failure of a task group goes on, and its timeouts are timeouts. What is done together ends
together, and what never had its turn was not begun."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.storage.task_groups import gather_bounded, uncancelled

LIMIT = 2


async def fails() -> None:
    await asyncio.sleep(0)
    raise ValueError


async def failed_group() -> None:
    try:
        with uncancelled():
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(asyncio.sleep(3_600))
    except* ValueError:
        pass


async def test_the_next_timeout_raises_timeout_error() -> None:
    await failed_group()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(3_600)


async def test_a_cancellation_by_others_stays() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with uncancelled():
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(3_600))
                begun.set()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_results_come_in_order_and_no_more_than_so_many_run_at_once() -> None:
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number

    assert await gather_bounded((work(number) for number in range(8)), LIMIT) == list(range(8))
    assert most == LIMIT


async def test_the_first_failure_ends_all_and_nothing_is_left_unawaited() -> None:
    """Warnings are errors here: a coroutine that was never awaited would be one."""
    begun, ended = [], []

    async def work(number: int) -> None:
        begun.append(number)
        try:
            if number == 1:
                raise ValueError("one of them")
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="one of them"):
        await gather_bounded((work(number) for number in range(5)), LIMIT)
    assert sorted(begun) == sorted(ended)
    assert 4 not in begun


async def test_a_failure_leaves_no_cancellation_behind_for_the_next_timeout() -> None:
    """A job that failed would end for good at its next wait, and nobody would notice."""

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("a job's trouble")

    with pytest.raises(ValueError, match="a job's trouble"):
        await gather_bounded((fails(), asyncio.sleep(3_600)), LIMIT)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(3_600)

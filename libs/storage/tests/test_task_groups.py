"""A task that handles the failure of a task group goes on, and its timeouts are timeouts."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.storage.task_groups import uncancelled


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

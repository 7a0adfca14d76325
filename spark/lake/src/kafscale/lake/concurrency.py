"""Runs a bounded number of tasks at once. When the call returns or raises, all of them have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from kafscale.storage.task_groups import uncancelled

T = TypeVar("T")


async def gather_bounded(works: Iterable[Coroutine[Any, Any, T]], at_once: int) -> list[T]:
    """The results, in order. Raises the first failure, after the other tasks are cancelled."""
    slots = asyncio.Semaphore(at_once)
    given = list(works)

    async def one(work: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await work

    try:
        with uncancelled():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(work)) for work in given]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        for work in given:
            work.close()  # tasks cancelled before they started; for others this does nothing
    return [task.result() for task in tasks]

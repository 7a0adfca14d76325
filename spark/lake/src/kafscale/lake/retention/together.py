"""Several things at once, none of which is still under way when this has returned or raised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(works: Iterable[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Their results in order. Raises what the first that failed raised; the others are cancelled, or never begun."""
    slots = asyncio.Semaphore(at_once)

    async def one(work: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await work()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]

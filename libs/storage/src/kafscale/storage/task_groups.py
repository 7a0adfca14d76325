"""Groups of tasks whose failures are handled by a task that goes on, and a bounded number of tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def uncancelled() -> Iterator[None]:
    """Around an `asyncio.TaskGroup`. A TaskGroup of Python 3.11 cancels its own task when a child fails, and does not
    take that back. Then the next `asyncio.timeout` that expires in the task raises CancelledError instead of
    TimeoutError, and the task ends, without a word. A cancellation by others stays.
    """
    here = asyncio.current_task()
    assert here is not None, "a coroutine runs in a task"
    before = here.cancelling()
    try:
        yield
    except BaseExceptionGroup:
        if here.cancelling() > before:
            here.uncancel()
        raise


async def gather_bounded(works: Iterable[Coroutine[Any, Any, T]], at_once: int) -> list[T]:
    """The results, in order. Raises the first failure, after the other tasks are cancelled. When it returns or raises,
    all of them have ended."""
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

"""Tasks that run together, where an `asyncio.TaskGroup` alone would do harm: to its own task after a failure, to the
memory of a request, and to the ids in logs and traces; and a bounded number of tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
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


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Their results, when all have ended; or raises the first exception then. If it is cancelled, so are they. For
    the path of a request.

    An asyncio.TaskGroup that is cancelled leaves a reference cycle (Python 3.11 and 3.12), and with it all that the
    request holds until the garbage collector runs.
    """
    results: list[T] = []
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results


class OwnTasks(asyncio.TaskGroup):
    """The task group of a process: its tasks work for the process, not for the request that started them.

    A task inherits the context variables of the task that creates it. A watch, a pump or a load that a request starts
    would otherwise log and trace under the ids of that request for as long as it runs. Law: a task of this group starts
    with an empty context unless the caller passes one. Tasks that work for one request (`stream.tasks`) set its ids
    themselves. Tasks that a request creates in a separate group inherit its ids, as intended.
    """

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return super().create_task(coro, name=name, context=Context() if context is None else context)


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

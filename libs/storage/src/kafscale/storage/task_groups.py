"""A guard for task groups whose failures are handled by a task that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


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

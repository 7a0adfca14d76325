"""The task group of a process: its tasks work for the process, not for the request that started them.

A task inherits the context variables of the task that creates it. A watch, a pump or a load that a request starts would
otherwise log and trace under the ids of that request for as long as it runs. Law: a task of this group starts with an
empty context unless the caller passes one. Tasks that work for one request (`stream.tasks`) set its ids themselves.
Tasks that a request creates in a separate group inherit its ids, as intended.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class OwnTasks(asyncio.TaskGroup):
    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return super().create_task(coro, name=name, context=Context() if context is None else context)

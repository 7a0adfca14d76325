"""The task group of a process: what runs in it belongs to the process, not to the request that began it.

A task inherits the context variables of whoever makes it. A watch, a pump or a load that some request happens to
begin would log and trace under the ids of that request for ever. Law: a task of this group starts with an empty
context unless it is given one. Tasks that work for one request (`stream.tasks`) set its ids themselves; those that
a request makes in a group of its own inherit them, as they should.
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

"""Handlers that are coroutines: a task per request, so many at once, cancelled with their request.

A prompt handler begins without a task, and has one only from its first wait on: most heartbeats never wait, and a
task costs more than all the rest of such a request.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context
from typing import Any

import structlog
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.runtime.stream.inbound import Handler, InboundRequest
from kafscale.runtime.tracing import CURRENT_SPAN
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError

log = structlog.get_logger("kafscale.stream")

AsyncHandler = Callable[[InboundRequest], Awaitable[Sequence[Buffer]]]
Wait = Any
"""What a coroutine gives the loop when it waits: asyncio's future."""


def task_handler(
    async_fn: AsyncHandler,
    task_group: asyncio.TaskGroup,
    *,
    concurrent_max: int = 1024,
    prompt: bool = False,
) -> Handler:
    """A task per request, for handlers with no ordered part; at most concurrent_max run at once.

    The result of async_fn is the reply, unless it replied itself; an exception is logged and
    answered FAILED, with a traceback unless the request was malformed; a cancel cancels it.
    `prompt`: it has a task only once it waits. Until then it must not ask for the current task, as asyncio.timeout
    does.
    """
    tasks = _Tasks(async_fn, task_group, concurrent_max)
    return tasks.start_promptly if prompt else tasks.start


class _Tasks:
    """The queue is bounded by the open requests of the streams."""

    def __init__(self, async_fn: AsyncHandler, task_group: asyncio.TaskGroup, concurrent_max: int) -> None:
        self._async_fn = async_fn
        self._task_group = task_group
        self._concurrent_max = concurrent_max
        self._running = 0
        self._queue: deque[InboundRequest] = deque()

    def start(self, request: InboundRequest) -> None:
        if self._running >= self._concurrent_max:
            self._queue.append(request)
            return
        self._run_in_task(request, self._run(request))

    def start_promptly(self, request: InboundRequest) -> None:
        """Its context is the caller's: the stream has set whose request it is."""
        if self._running >= self._concurrent_max:
            self._queue.append(request)
            return
        token = CURRENT_SPAN.set(request.span)
        running = self._run(request)
        try:
            wait = running.send(None)
        except StopIteration:
            return
        finally:
            CURRENT_SPAN.reset(token)
        self._run_in_task(request, _Begun(running, wait))

    def _run_in_task(self, request: InboundRequest, running: Coroutine[Any, Any, None]) -> None:
        self._running += 1
        task = self._task_group.create_task(running, context=_own_context(request))
        task.add_done_callback(self._ended)
        request.on_cancel(task.cancel)

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._running -= 1
        while self._queue and self._running < self._concurrent_max:
            request = self._queue.popleft()
            if not request.cancelled:
                self.start(request)

    async def _run(self, request: InboundRequest) -> None:
        try:
            body = await self._async_fn(request)
            if not request.replied:
                request.reply(body)
        except WireError as malformed:
            # Logged at debug level, because a client may repeat it. The front door reads the request as well when it
            # gets FAILED, closes the connection, and logs it now and then.
            log.debug("malformed request", api_key=request.meta.api_key, why=str(malformed))
        except Exception:
            log.exception("handler failed", api_key=request.meta.api_key, request_id=request.meta.request_id)
        finally:
            # After an exception, or after a cancel of what it awaited: the outcome is unknown.
            if not request.replied:
                request.reply(status=ReplyStatus.FAILED)


class _Begun(Coroutine[Wait, Any, None], Generator[Wait, Any, None]):
    """The rest of a coroutine that waits, for a task to run: first its wait, then all that follows.

    A coroutine itself, and not awaited by one: a task that is cancelled before its first step throws into it, and what
    it holds must hear that.
    """

    def __init__(self, running: Coroutine[Wait, Any, None], wait: Wait) -> None:
        self._running = running
        self._waits = [wait]

    def send(self, value: Any, /) -> Wait:
        return self._waits.pop() if self._waits else self._running.send(value)

    def throw(self, *error: Any) -> Wait:
        self._waits.clear()
        return self._running.throw(*error)

    def close(self) -> None:
        self._running.close()

    def __await__(self) -> Generator[Wait, Any, None]:
        return self


def _own_context(request: InboundRequest) -> Context:
    context = Context()
    context.run(CURRENT_REQUEST.set, request.meta)
    context.run(CURRENT_SPAN.set, request.span)
    return context

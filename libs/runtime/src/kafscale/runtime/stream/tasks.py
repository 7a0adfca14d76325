"""Handlers that are coroutines: a task per request, so many at once, cancelled with their request."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import Buffer, ReplyStatus
from kafscale.runtime.stream.inbound import Handler, InboundRequest
from kafscale.runtime.tracing import CURRENT_SPAN
from kafscale.wire.errors import WireError

log = structlog.get_logger("kafscale.stream")

AsyncHandler = Callable[[InboundRequest], Awaitable[Sequence[Buffer]]]


def task_handler(
    async_fn: AsyncHandler, task_group: asyncio.TaskGroup, *, concurrent_max: int = 1024
) -> Handler:
    """A task per request, for handlers with no ordered part; at most concurrent_max run at once.

    What async_fn returns is the reply, unless it replied itself; what it raises is logged and
    answered FAILED, with a traceback unless the request was malformed; a cancel cancels it.
    """
    return _Tasks(async_fn, task_group, concurrent_max).start


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
        self._running += 1
        task = self._task_group.create_task(self._run(request))
        task.add_done_callback(self._ended)
        request.on_cancel(task.cancel)

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._running -= 1
        while self._queue and self._running < self._concurrent_max:
            request = self._queue.popleft()
            if not request.cancelled:
                self.start(request)

    async def _run(self, request: InboundRequest) -> None:
        CURRENT_REQUEST.set(request.meta)  # of this task, whoever made it: it may have waited behind others
        CURRENT_SPAN.set(request.span)
        try:
            body = await self._async_fn(request)
            if not request.replied:
                request.reply(body)
        except WireError as malformed:
            # The client's mistake, as often as it likes. The front door reads the request as well when it gets
            # FAILED, hangs up, and says so once in a while.
            log.debug("malformed request", api_key=request.meta.api_key, why=str(malformed))
        except Exception:
            log.exception("handler failed", api_key=request.meta.api_key, request_id=request.meta.request_id)
        finally:
            # After an exception, or when what it awaited was cancelled under it: the outcome is unknown.
            if not request.replied:
                request.reply(status=ReplyStatus.FAILED)

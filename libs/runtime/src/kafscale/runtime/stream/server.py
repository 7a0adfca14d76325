"""The service's end of the streams: hands requests to handlers in arrival order, sends replies in any.

Laws: a handler is called synchronously, so what it does before it returns happens in the order in
which the front door sent. Every request is answered exactly once or its stream is gone. When a
stream ends, everything open on it is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kafscale.runtime.stream.frame import Buffer, ReplyStatus, RequestMeta


class InboundRequest:
    """One request, open until reply() was called or its stream ended."""

    __slots__ = ("arrived_ms", "body", "meta")

    meta: RequestMeta
    body: memoryview
    arrived_ms: int

    def reply(
        self, buffers: Sequence[Buffer] = (), *, status: ReplyStatus = ReplyStatus.FINAL, revision: int = 0
    ) -> None:
        """Exactly once; after a cancel it is allowed and goes nowhere."""
        raise NotImplementedError

    @property
    def cancelled(self) -> bool:
        """The client left or the stream ended: nobody reads the reply."""
        raise NotImplementedError

    def on_cancel(self, fn: Callable[[], None]) -> None:
        """Calls fn once when the request is cancelled before its reply; at once if it already is."""
        raise NotImplementedError

    def expired(self, now_ms: int) -> bool:
        raise NotImplementedError


Handler = Callable[[InboundRequest], None]
AsyncHandler = Callable[[InboundRequest], Awaitable[Sequence[Buffer]]]


def task_handler(
    async_fn: AsyncHandler, task_group: asyncio.TaskGroup, *, concurrent_max: int = 1024
) -> Handler:
    """A task per request, for handlers with no ordered part; at most concurrent_max run at once.

    What async_fn returns is the reply; what it raises is logged and answered FAILED; a cancel cancels it.
    """
    raise NotImplementedError

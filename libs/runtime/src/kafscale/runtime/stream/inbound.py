"""One request as a handler sees it, from arrival to its one reply."""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.tracing import Span
from kafscale.wire.buffers import Buffer


class ReplySink(Protocol):
    """The stream a request came on."""

    def answer(
        self, request: "InboundRequest", status: int, revision: int, body: Sequence[Buffer]
    ) -> None: ...


CountError = Callable[[int, int], None]
"""By API key and error code."""


class _State(enum.IntEnum):
    OPEN = 0
    CANCELLED = 1
    REPLIED = 2


_OPEN, _CANCELLED, _REPLIED = _State


class InboundRequest:
    """One request, open until reply() was called or its stream ended."""

    __slots__ = ("_callbacks", "_count_error", "_sink", "_state", "arrived_ms", "body", "meta", "span")

    def __init__(
        self,
        meta: RequestMeta,
        body: memoryview,
        *,
        arrived_ms: int,
        sink: ReplySink,
        count_error: CountError | None = None,
    ) -> None:
        self.meta = meta
        self.body = body
        self.arrived_ms = arrived_ms
        self.span: Span | None = None
        self._sink = sink
        self._count_error = count_error
        self._state = _OPEN
        self._callbacks: list[Callable[[], object]] | None = None

    def reply(
        self, buffers: Sequence[Buffer] = (), *, status: ReplyStatus = ReplyStatus.FINAL, revision: int = 0
    ) -> None:
        """Exactly once; after a cancel it is allowed and goes nowhere."""
        state = self._state
        assert state is not _REPLIED, f"request {self.meta.request_id} is answered twice"
        self._state = _REPLIED
        self._callbacks = None
        if state is _OPEN:
            self._sink.answer(self, status, revision, buffers)

    def failed(self, code: int) -> None:
        """The answer, or a partition in it, says this error: count it, whether or not anybody waits for it."""
        if self._count_error is not None:
            self._count_error(self.meta.api_key, code)

    @property
    def cancelled(self) -> bool:
        """The client left or the stream ended, so the reply goes nowhere."""
        return self._state is _CANCELLED

    @property
    def replied(self) -> bool:
        return self._state is _REPLIED

    def on_cancel(self, fn: Callable[[], object]) -> None:
        """Calls fn once when the request is cancelled before its reply; at once if it already is."""
        if self._state is _CANCELLED:
            fn()
        elif self._state is _OPEN:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(fn)

    def expired(self, now_ms: int) -> bool:
        budget_ms = self.meta.age_budget_ms
        return budget_ms != 0 and now_ms - self.arrived_ms >= budget_ms

    def cancel(self) -> Sequence[Callable[[], object]]:
        """For the stream: marks the request and returns the callbacks to call."""
        if self._state is not _OPEN:
            return ()
        self._state = _CANCELLED
        callbacks = self._callbacks or ()
        self._callbacks = None
        return callbacks


Handler = Callable[[InboundRequest], None]

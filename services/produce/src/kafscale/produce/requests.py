"""The appends of one partition that have no answer yet, and what each of them holds until then.

An append is answered once. `gates.AppendOrder` learns of a refusal here, before the client does.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kafscale.produce.gates import REPEATED, AppendOrder, Key, Known
from kafscale.produce.log.batches import Rejection
from kafscale.produce.log.contents import Contents
from kafscale.produce.log.model import Instant, Reply
from kafscale.produce.segment_spans import SegmentSpans
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.tracing import Span
from kafscale.wire.errors import ErrorCode


class Waiter(Protocol):
    """A request that waits for the answers of its partitions; `slot` names one of them."""

    def settle(self, slot: int, reply: Reply) -> None: ...

    @property
    def abandoned(self) -> bool: ...  # nobody reads the answer any more


class Request(NamedTuple):
    """An append that is not answered yet."""

    token: int
    waiter: Waiter
    slot: int
    records: memoryview | None
    deadline_ms: int
    zstd_allowed: bool

    def given_up(self, now_ms: int) -> bool:
        """What nobody waits for any more must not be appended late."""
        return self.waiter.abandoned or self.deadline_ms < now_ms


NO_MEMORY = Contents(
    Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "There is no memory for the batch as its topic stores it.")
)


class Requests:
    """See the module's law."""

    def __init__(
        self, key: Key, append_order: AppendOrder, budget: MemoryBudget, spans: SegmentSpans
    ) -> None:
        self._key = key
        self._append_order = append_order
        self._budget = budget
        self._spans = spans
        self._open: dict[int, Request] = {}
        self._grown: dict[int, int] = {}  # → bytes held beside those that came
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    def take(
        self,
        waiter: Waiter,
        slot: int,
        records: memoryview | None,
        deadline_ms: int,
        zstd_allowed: bool,
        span: Span | None,
    ) -> Request:
        self._token = token = self._token + 1
        self._open[token] = request = Request(token, waiter, slot, records, deadline_ms, zstd_allowed)
        if span is not None:
            self._spans.waits(token, span)
        return request

    def hold(self, request: Request, contents: Contents) -> Contents:
        """Batches that were compressed anew are held until the answer, beside those that came: if there is memory."""
        size = len(contents.recompressed or b"")
        if not self._budget.reserve(size):
            return NO_MEMORY
        self._grown[request.token] = size
        return contents

    def is_behind(self, request: Request, known: Known, now: Instant) -> bool:
        return self._append_order.is_behind(self._key, request.records, known, now.mono_ms)

    def answer(self, reply: Reply, now: Instant) -> None:
        request = self._open[reply.token]
        if reply.error in REPEATED:
            self._append_order.refused(self._key, request.records, now.mono_ms)
        self.settle(request, reply)

    def settle(self, request: Request, reply: Reply) -> None:
        """The same for a refusal that others need not know of."""
        del self._open[request.token]
        self._budget.release(self._grown.pop(request.token, 0))
        self._spans.answered(request.token)
        request.waiter.settle(request.slot, reply)

"""The appends of one partition that have no answer yet, and what each of them holds until then.

An append is answered once. `gates.AppendOrder` learns of a refusal here, before the client does.

A segment, its index and the transaction serve many requests. Law: each of the three is one span, a child of the first
traced request inside, with links to the other traced ones. For a partition without traced requests nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

from kafscale.produce.gates import REPEATED, AppendOrder, Key, Known
from kafscale.produce.log.contents import Contents
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import CommitHead, Instant, Part, PutObject, Rejection, Reply, Token
from kafscale.produce.log.writer import PartitionWriter
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.committer import TRANSACTION
from kafscale.runtime.tracing import Span
from kafscale.wire.errors import ErrorCode

_PUTS = {Part.SEGMENT: "PUT segment", Part.INDEX: "PUT index"}
_UNTRACED = nullcontext()


@contextmanager
def _lasting(span: Span) -> Iterator[None]:
    try:
        yield
    finally:
        span.end()


class Caller(Protocol):
    """A request that waits for the answers of its partitions; `slot` names one of them."""

    def settle(self, slot: int, reply: Reply) -> None: ...

    @property
    def abandoned(self) -> bool: ...  # no client reads the answer any more


class Request(NamedTuple):
    """An append that is not answered yet."""

    token: int
    caller: Caller
    slot: int
    records: memoryview | None
    deadline_ms: int
    zstd_allowed: bool

    def given_up(self, now_ms: int) -> bool:
        """A request whose client has stopped waiting must not be appended late."""
        return self.caller.abandoned or self.deadline_ms < now_ms


NO_MEMORY = Contents(
    Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "There is no memory for the batch as its topic stores it.")
)


class SegmentSpans:
    def __init__(self) -> None:
        self._waiting: dict[Token, Span] = {}

    def waits(self, token: Token, span: Span) -> None:
        self._waiting[token] = span

    def answered(self, token: Token) -> None:
        self._waiting.pop(token, None)

    def put(self, writer: PartitionWriter, action: PutObject) -> AbstractContextManager[None]:
        """Around the request to the store."""
        if not self._waiting:
            return _UNTRACED
        inside = [flight for flight in writer.flights() if flight.base == action.base]
        span = self._start(_PUTS[action.part], inside, {"kafscale.object": action.key})
        return _UNTRACED if span is None else _lasting(span)

    def commit(self, writer: PartitionWriter, action: CommitHead) -> Span | None:
        """From the submission; the committer ends it."""
        if not self._waiting:
            return None
        inside = [flight for flight in writer.flights() if flight.end <= action.head.next]
        return self._start(TRANSACTION, inside, {"kafscale.segments": len(inside)})

    def _start(self, name: str, flights: Iterable[Flight], attributes: dict[str, str | int]) -> Span | None:
        tokens = (waiter.token for flight in flights for waiter in flight.waiters.items)
        spans = [span for token in tokens if (span := self._waiting.get(token)) is not None]
        if not spans:
            return None
        return spans[0].child(name, attributes, links=spans[1:])


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
        self._grown: dict[int, int] = {}  # → bytes held in addition to those that came
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    def take(
        self,
        caller: Caller,
        slot: int,
        records: memoryview | None,
        deadline_ms: int,
        zstd_allowed: bool,
        span: Span | None,
    ) -> Request:
        self._token = token = self._token + 1
        self._open[token] = request = Request(token, caller, slot, records, deadline_ms, zstd_allowed)
        if span is not None:
            self._spans.waits(token, span)
        return request

    def hold(self, request: Request, contents: Contents) -> Contents:
        """Batches that were compressed again are held until the answer, with those that came: if there is memory."""
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
        request.caller.settle(request.slot, reply)

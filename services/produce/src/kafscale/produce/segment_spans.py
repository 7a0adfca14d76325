"""The spans of one partition's flights: what a segment costs, in the traces of the requests that are inside.

A segment, its index and the transaction serve many requests. Law: each is one span, a child of the first traced
request inside, with links to the other traced ones. Of a partition without traced requests nothing is looked at.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import CommitHead, Part, PutObject, Token
from kafscale.produce.log.writer import PartitionWriter
from kafscale.runtime.committer import TRANSACTION
from kafscale.runtime.tracing import Span

_PUTS = {Part.SEGMENT: "PUT segment", Part.INDEX: "PUT index"}
_UNTRACED = nullcontext()


@contextmanager
def _lasting(span: Span) -> Iterator[None]:
    try:
        yield
    finally:
        span.end()


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

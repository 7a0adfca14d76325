"""A request between its arrival and its answer, what handlers may know of its connection, and the revisions that later
requests must carry.

Law: an exchange ends once, by an answer, by silence (acks=0) or by hanging up; everything later is dropped. An answer
may be passed on in parts. Every exchange has a deadline. When the client leaves or the deadline passes, the exchange
calls `call`, which must cancel everything that is still open at a service.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import structlog
from kafscale.access.authorizer import Rights
from kafscale.access.principals import ANONYMOUS, Principal
from kafscale.frontdoor.api import Api, Backend
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.connection import Request, Slot
from kafscale.frontdoor.memory import UnsentAnswers
from kafscale.frontdoor.quotas.client_quotas import Dues, Usage
from kafscale.frontdoor.request_order import RequestOrder
from kafscale.runtime.logs import request_ids
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.tracing import Span, Tracer, request_attributes
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError, error_name

log = structlog.get_logger("kafscale.frontdoor")

Held = tuple["Exchange", Callable[["Exchange"], None]]
"""A request, and what starts it."""
StartFetch = Callable[["Exchange", int], None]
"""What sends a Fetch on, and how large its answer may be."""
Outcome = Literal["answered", "silent", "abandoned"]
NONE_YET: Final = -1
NO_ANSWER: Final = ("request without an answer", "bad_request")
"""In the log and in the metric: why a connection was closed."""
REVISION_KINDS: Final = 2
NEVER_MS: Final = 1 << 62
"""Added to the deadline of a request that waits for its turn: for others of its connection, or for a throttle time."""


class Call(Protocol):
    """The work for one exchange."""

    def abandon(self) -> None:
        """The client has left: cancel the open requests, answer nothing."""
        ...

    def expire(self) -> None:
        """The deadline has passed: cancel the open requests and answer that it timed out."""
        ...


class Client(Protocol):
    """A connection as its exchanges and the gateway see it; client.py is the shell around its socket."""

    caller: "Caller"
    exchanges: "dict[Slot, Exchange]"

    def __hash__(self) -> int: ...

    def answered(self, exchange: "Exchange", body: Sequence[Buffer]) -> None: ...

    def answered_part(
        self, exchange: "Exchange", part: memoryview, *, size: int, left_bytes: int
    ) -> None: ...

    def silenced(self, exchange: "Exchange") -> None: ...

    def admits(self, exchange: "Exchange", size: int) -> bool: ...

    def pause_for(self, channel: Channel) -> None: ...

    def mute(self, until_ms: int) -> None: ...

    def flush(self) -> None: ...

    def sweep(self, now_ms: int) -> None: ...

    def close(self, kind: str, label: str, *, flush: bool = True, **fields: object) -> None: ...

    def cut_off(self, kind: str, label: str) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


@dataclass(slots=True, eq=False, kw_only=True)
class Caller:
    """One client connection: its identity, and the instances that its requests stay with."""

    connection_id: int
    listener: str
    peer: str
    unsent: UnsentAnswers = field(default_factory=UnsentAnswers)
    fetch_turn: "FetchTurn | None" = None
    order: "RequestOrder[Exchange] | None" = None  # most connections never need one
    dues: Dues = field(default_factory=dict)
    held: "deque[Held] | None" = None  # requests that wait for a throttle time, and those behind them
    principal: Principal = ANONYMOUS
    session_ends_ms: int | None = None  # of its login, on the clock of `now_ms`; None: never
    rights: Rights | None = None  # of the principal at the peer, once they were asked (authorization.py)
    controls: dict[Backend, Channel] = field(default_factory=dict)
    gone: bool = False


@dataclass(slots=True, eq=False)
class FetchTurn:
    """The Fetches of one connection (fetch_turns.py)."""

    running: "Exchange | None" = None
    answered_slot: int = NONE_YET
    last_bytes: int | None = None
    waiting: "deque[tuple[Exchange, int, StartFetch]]" = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Exchange:
    _client: Client
    request: Request
    api: Api
    deadline_ms: int
    caller: Caller = field(init=False)
    began_ms: int = field(init=False)  # when it arrived, or when it could start, if it had to wait
    call: Call | None = None
    unanswered: bool = True
    error: int = 0
    arriving_bytes: int = 0  # of large answers, reserved until they are the connection's
    out_bytes: int = 0
    usage: Usage | None = None  # while quotas are set
    span: Span | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        self.caller = self._client.caller
        self.began_ms = self.request.arrived_ms

    def wait(self) -> None:
        """The request waits for its turn. Its time starts with `begin`."""
        self.deadline_ms += NEVER_MS

    def begin(self, now_ms: int) -> None:
        """The wait is over. The request has as much time as if it had just arrived."""
        self.deadline_ms += now_ms - self.began_ms - NEVER_MS
        self.began_ms = now_ms

    def handle(self, handler: "Callable[[Exchange], None]") -> None:
        """Hands the request over. One that the handler cannot read (WireError) closes its connection."""
        try:
            handler(self)
        except WireError as error:
            self.hang_up(str(error))

    @property
    def version(self) -> int:
        return self.request.header.api_version

    def answer(self, body: Sequence[Buffer]) -> None:
        if self.unanswered:
            self.unanswered = False
            self.call = None
            self._client.answered(self, body)

    def answer_part(self, part: memoryview, *, size: int, left_bytes: int) -> None:
        """Some of an answer of `size` bytes, of which `left_bytes` are still to come. The last part ends the exchange.
        After the first one there can be no other answer: only the rest of this one, or `break_off`."""
        if not self.unanswered:
            return
        if not left_bytes:
            self.unanswered = False
            self.call = None
        self._client.answered_part(self, part, size=size, left_bytes=left_bytes)

    def turn_away(self, kind: str, label: str, reason: str) -> None:
        """The request was not sent to any service, and its connection is closed."""
        if self.unanswered:
            self._client.close(kind, label, flush=False, reason=reason)

    def break_off(self, reason: str) -> None:
        """The rest of an answer will not come. The client finds the end of its connection within the answer."""
        if self.unanswered:
            self._client.close("an answer that broke off", "answer_broken", flush=False, reason=reason)

    def silence(self) -> None:
        """Ends a request with acks=0, which has no answer."""
        if self.unanswered:
            self.unanswered = False
            self.call = None
            self._client.silenced(self)

    def hang_up(self, reason: str) -> None:
        """There is no answer that the client could read, so its connection is closed."""
        if self.unanswered:
            self._client.close(*NO_ANSWER, reason=reason)

    def admits(self, size: int) -> bool:
        """Whether there is memory for `size` more bytes of a large answer."""
        return self.unanswered and self._client.admits(self, size)

    def pause_for(self, channel: Channel) -> None:
        """The instance is congested, so the client is not read until it has caught up."""
        self._client.pause_for(channel)

    def mute(self, until_ms: int) -> None:
        """The client is over a quota, so it is not read until then."""
        self._client.mute(until_ms)

    def expire(self) -> None:
        """Its deadline has passed."""
        if not self.unanswered:
            return
        if self.call is None:
            self.hang_up("the request timed out")
        else:
            self.call.expire()

    def meta(
        self, *, now_ms: int, revision: int = 0, log_start_revision: int = 0, lane_epoch: int = 0
    ) -> RequestMeta:
        """The request's header for a service. The age budget is the time until the deadline."""
        caller, header = self.caller, self.request.header
        return RequestMeta(
            connection_id=caller.connection_id,
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            lane_epoch=lane_epoch,
            age_budget_ms=max(1, self.deadline_ms - now_ms),
            revision=revision,
            log_start_revision=log_start_revision,
            listener=caller.listener,
            principal=caller.principal,
            peer=caller.peer,
            client_id=header.client_id,
            traceparent=self.traceparent,
        )


class AckedRevision:
    """The highest etcd revisions that this front door has answered for: of commits, and of moves of a log's start.

    Reads carry both. So a client that has seen its ack finds its record, and a client that has deleted records does not
    see them again, whichever fetch instance answers. They are two numbers because commits never end while moves are
    rare: only for the second may a read that could be served be made to wait for etcd. Workers of one front door share
    them: each writes its own slots of a common page and reads them all. Without `slots`: of this process alone.
    """

    __slots__ = ("commits", "log_starts")

    def __init__(self, slots: memoryview | None = None, slot: int = 0) -> None:
        workers = 0 if slots is None else len(slots) // REVISION_KINDS
        self.commits = Highest(slots and slots[:workers], slot)
        self.log_starts = Highest(slots and slots[workers:], slot)


class Highest:
    __slots__ = ("_own", "_slot", "_slots")

    def __init__(self, slots: memoryview | None, slot: int) -> None:
        self._own = 0
        self._slot = slot
        self._slots = slots

    @property
    def value(self) -> int:
        return self._own if self._slots is None else max(self._slots)

    def saw(self, revision: int) -> None:
        if revision > self._own:
            self._own = revision
            if self._slots is not None:
                self._slots[self._slot] = revision


def log_request(exchange: Exchange, outcome: Outcome, duration_ms: int, out_bytes: int) -> None:
    """Logs the end of a request at debug level. `duration_ms`: from the last byte in.

    `out_bytes`: of the answer's body; sizes are without the length prefix. Of an error inside an answer that passed
    unread the front door knows nothing.
    """
    caller = exchange.caller
    log.debug(
        "request",
        **request_ids(exchange.meta(now_ms=0)),
        peer=caller.peer,
        listener=caller.listener,
        outcome=outcome,
        error=error_name(exchange.error) if exchange.error else None,
        request_bytes=exchange.request.size,
        response_bytes=out_bytes,
        duration_ms=duration_ms,
    )


def start_span(tracer: Tracer, exchange: Exchange) -> None:
    """Starts the root span, from the last byte of the request to the answer. Does nothing if it is not sampled."""
    span = tracer.start_root(f"{exchange.api.name} v{exchange.version}")
    if span is None:
        return
    exchange.span = span
    exchange.traceparent = span.traceparent
    for name, value in request_attributes(exchange.meta(now_ms=0)).items():
        span.set(name, value)
    span.set("network.peer.address", exchange.caller.peer)
    span.set("kafscale.request_bytes", exchange.request.size)


def end_span(exchange: Exchange, outcome: Outcome, out_bytes: int) -> None:
    """Ends the root span. Call it once, however the exchange ended."""
    span, exchange.span = exchange.span, None
    assert span is not None, "a span ends once"
    span.set("kafscale.outcome", outcome)
    span.set("kafscale.response_bytes", out_bytes)
    if exchange.error:
        span.set("kafka.error", error_name(exchange.error))
    span.end()

"""The trace and the log of a request: the root span if it is sampled, and a line at debug level when it has ended."""

from typing import Literal

import structlog
from kafscale.frontdoor.exchange import Exchange
from kafscale.runtime.logs import request_ids
from kafscale.runtime.tracing import Tracer, request_attributes
from kafscale.wire.errors import error_name

log = structlog.get_logger("kafscale.frontdoor")

Outcome = Literal["answered", "silent", "abandoned"]


def log_request(exchange: Exchange, outcome: Outcome, duration_ms: int, out_bytes: int) -> None:
    """`duration_ms`: from the last byte in. `out_bytes`: of the answer's body; sizes are without the length prefix.

    Of an error inside an answer that passed unread the front door knows nothing.
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

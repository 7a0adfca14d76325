"""What is told of a request when it has ended: its line at debug level, and the end of its part of the trace."""

from typing import Literal

import structlog
from kafscale.frontdoor.exchange import Exchange
from kafscale.runtime.logs import request_ids
from kafscale.wire.error_names import error_name

log = structlog.get_logger("kafscale.frontdoor")


def log_request(
    exchange: Exchange, outcome: Literal["answered", "silent", "abandoned"], duration_ms: int, out_bytes: int
) -> None:
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


def end_span(exchange: Exchange) -> None:
    """Once, however the exchange ended."""
    span, exchange.span = exchange.span, None
    if span is not None:
        span.end()

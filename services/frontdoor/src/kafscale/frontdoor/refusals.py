"""Answers that the front door gives itself, because no service did: the request's names with an error.

Laws: a refusal is written for requests of `REQUEST_BYTES_MAX` at most, since the request has to be read for it while
everybody waits; the connection of a larger one is closed, on which its client asks again. A refusal that is large has
room reserved as other large answers have.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.outlets import SMALL_ANSWER_BYTES
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

Refuse = Callable[[memoryview, int, ErrorCode], Sequence[Buffer]]
"""Request body, version, error → the answer. Raises WireError when there is none."""
REQUEST_BYTES_MAX: Final = 1 << 20


def refuse_all(exchange: Exchange, refuse: Refuse, code: ErrorCode) -> None:
    exchange.error = int(code)
    size = len(exchange.request.body)
    if size > REQUEST_BYTES_MAX:
        exchange.hang_up(f"{exchange.row.name} of {size} bytes: {code.name}, and too large for a refusal")
        return
    try:
        body = refuse(exchange.request.body, exchange.version, code)
    except WireError as error:
        exchange.hang_up(str(error))
        return
    size = sum(map(len, body))
    if size > SMALL_ANSWER_BYTES and not exchange.admits(size):
        exchange.hang_up(f"no memory for a refusal of {size} bytes")
        return
    exchange.answer(body)

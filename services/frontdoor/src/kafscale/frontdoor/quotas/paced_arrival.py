"""A new connection on its way to its listener while rates of connections are limited: the shell of connection_rates.py.

Law: a connection that waits is not read, has no place among the connections yet, and begins no TLS handshake. At most
`ARRIVALS_MAX` of a process wait; a further one is closed. What a client sends before its connection is paused, at most
`EARLY_BYTES_MAX`, is handed over when it begins.
"""

import asyncio
from typing import Final, cast

from kafscale.access.quota import QuotaKey
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.listeners import address_of
from kafscale.frontdoor.listeners.proxy_arrival import Next, Peername
from kafscale.frontdoor.quotas.connection_rates import ConnectionRates

ARRIVALS_MAX: Final = 1_000
EARLY_BYTES_MAX: Final = 4_096
TOO_FAST: Final = "connection_rate"
"""The reason, in the metric, of connections that were closed because too many began."""


class PacedArrivals:
    """Those of one process that wait."""

    def __init__(self, rates: ConnectionRates, gateway: Gateway) -> None:
        self.rates = rates
        self.gateway = gateway
        self._waiting: set[PacedArrival] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def behind(
        self, listener: str, make_next: Next, peername: Peername | None = None
    ) -> asyncio.BufferedProtocol:
        """The protocol of a new connection; that of the listener itself while nothing is limited."""
        if not self.rates.limits:
            return make_next(peername)
        return PacedArrival(self, listener, make_next, peername)

    def enter(self, arrival: "PacedArrival") -> bool:
        if len(self._waiting) >= ARRIVALS_MAX:
            return False
        self._waiting.add(arrival)
        return True

    def leave(self, arrival: "PacedArrival") -> None:
        self._waiting.discard(arrival)

    def close(self) -> None:
        for arrival in tuple(self._waiting):
            arrival.abort()


class PacedArrival(asyncio.BufferedProtocol):
    def __init__(
        self, arrivals: PacedArrivals, listener: str, make_next: Next, peername: Peername | None
    ) -> None:
        """`peername`: the client's address and port, if a proxy named them."""
        self._arrivals = arrivals
        self._listener = listener
        self._make_next = make_next
        self._peername = peername
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early = bytearray()
        self._filled = 0
        self._paused = False
        self._successor: asyncio.BufferedProtocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = self._peername or transport.get_extra_info("peername")
        gateway, arrivals = self._arrivals.gateway, self._arrivals
        verdict = arrivals.rates.arrived(self._listener, address_of(peername), gateway.clock.now_ms())
        if verdict.wait_ms:
            gateway.metrics.throttled(QuotaKey.CONNECTION_CREATION_RATE, verdict.wait_ms)
        if not verdict.wait_ms or not arrivals.enter(self):
            self._end(closes=verdict.closes or bool(verdict.wait_ms))
            return
        loop = asyncio.get_running_loop()
        loop.call_soon(self._pause)  # uvloop begins to read after this call
        self._timer = loop.call_later(verdict.wait_ms / 1_000, self._end, verdict.closes)

    def _pause(self) -> None:
        if self._transport is not None and not self._paused and self._timer is not None:
            self._paused = True
            self._transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._successor is not None:  # it began at once, and the header of a proxy has bytes for it
            return memoryview(self._successor.get_buffer(sizehint))
        if not self._early:
            self._early = bytearray(EARLY_BYTES_MAX)
        return memoryview(self._early)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._successor is not None:
            self._successor.buffer_updated(nbytes)
            return
        self._filled += nbytes
        self._pause()

    def _end(self, closes: bool) -> None:
        """The wait is over."""
        self._leave()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if closes:
            self._refuse()
            return
        successor = self._successor = self._make_next(self._peername)
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if self._paused and not transport.is_closing():
            transport.resume_reading()
        if self._filled and not transport.is_closing():
            memoryview(successor.get_buffer(-1))[: self._filled] = self._early[: self._filled]
            successor.buffer_updated(self._filled)

    def _refuse(self) -> None:
        gateway = self._arrivals.gateway
        gateway.metrics.hung_up.labels(TOO_FAST).inc()
        gateway.complaints.log("too many new connections", listener=self._listener)
        self.abort()

    def abort(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._transport = None

    def _leave(self) -> None:
        self._arrivals.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

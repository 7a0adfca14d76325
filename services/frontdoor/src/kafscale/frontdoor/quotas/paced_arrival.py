"""A new connection on its way to its listener while rates of connections are limited: the shell of connection_rates.py.

Law: a connection that waits is not read, has no place among the connections yet, and begins no TLS handshake. Where too
many wait, a further one is closed. What a client sends before its connection is paused, at most `EARLY_BYTES_MAX`, is
handed over when it begins.
"""

import asyncio
from functools import partial
from typing import Final

from kafscale.access.quota import QuotaKey
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.arrival import Arrival, Arrivals, Next, Peername
from kafscale.frontdoor.listeners.listeners import address_of
from kafscale.frontdoor.quotas.connection_rates import ConnectionRates

EARLY_BYTES_MAX: Final = 4_096
TOO_FAST: Final = "connection_rate"
"""The reason, in the metric, of connections that were closed because too many began."""


class PacedArrivals(Arrivals):
    def __init__(self, rates: ConnectionRates, gateway: Gateway) -> None:
        super().__init__()
        self.rates = rates
        self.gateway = gateway

    def behind(
        self, listener: str, make_next: Next, peername: Peername | None = None
    ) -> asyncio.BufferedProtocol:
        """The protocol of a new connection; that of the listener itself while nothing is limited. `peername`: the
        client's address and port, if a proxy named them."""
        if not self.rates.limits:
            return make_next(peername)
        return PacedArrival(self, listener, make_next, peername)


class PacedArrival(Arrival):
    def __init__(
        self, arrivals: PacedArrivals, listener: str, make_next: Next, peername: Peername | None
    ) -> None:
        super().__init__(arrivals)
        self._rates = arrivals.rates
        self._gateway = arrivals.gateway
        self._listener = listener
        self._make_next = make_next
        self._peername = peername
        self._early = bytearray()
        self._filled = 0
        self._successor: asyncio.BufferedProtocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peername = self._peername or transport.get_extra_info("peername")
        verdict = self._rates.arrived(self._listener, address_of(peername), self._gateway.clock.now_ms())
        if verdict.wait_ms:
            self._gateway.metrics.throttled(QuotaKey.CONNECTION_CREATION_RATE, verdict.wait_ms)
        if not verdict.wait_ms or self._arrivals.full:
            self._end(closes=verdict.closes or bool(verdict.wait_ms))
            return
        asyncio.get_running_loop().call_soon(self._pause)  # uvloop begins to read after this call
        self.wait(verdict.wait_ms / 1_000, partial(self._end, closes=verdict.closes))

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

    def _end(self, *, closes: bool) -> None:
        """The wait is over."""
        if not self.is_open:
            self._leave()
        elif closes:
            self._gateway.metrics.hung_up.labels(TOO_FAST).inc()
            self._gateway.warnings.log("too many new connections", listener=self._listener)
            self.abort()
        else:
            successor = self._successor = self._make_next(self._peername)
            self.hand_over(successor, memoryview(self._early)[: self._filled])

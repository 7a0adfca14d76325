"""A new connection on a listener behind a proxy, until the proxy has named the client.

Laws: a connection that does not come from a trusted network, or does not begin with a header, is closed before any
other byte is looked at. A header must be whole within `HEADER_S`. At most `ARRIVALS_MAX` connections wait for theirs;
a further one closes the oldest. The next protocol gets the bytes after the header, as if the client had connected here.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.listeners.listeners import address_of
from kafscale.frontdoor.listeners.proxy_protocol import HEADER_BYTES_MAX, ProxyHeaderWrong, parse

HEADER_S: Final = 5.0
ARRIVALS_MAX: Final = 1_000

Peername = tuple[str, int]
Next = Callable[[Peername | None], asyncio.BufferedProtocol]
"""Makes the protocol that takes over. None: the client is the peer of the socket."""


class ProxyArrivals:
    """Those of one process."""

    def __init__(self) -> None:
        self._waiting: dict[ProxyArrival, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, arrival: "ProxyArrival") -> None:
        if len(self._waiting) >= ARRIVALS_MAX:
            next(iter(self._waiting)).refuse("too many connections wait for their header")
        self._waiting[arrival] = None

    def leave(self, arrival: "ProxyArrival") -> None:
        self._waiting.pop(arrival, None)

    def close(self) -> None:
        for arrival in tuple(self._waiting):
            arrival.abort()


class ProxyArrival(asyncio.BufferedProtocol):
    def __init__(
        self, gateway: Gateway, security: ListenerSecurity, arrivals: ProxyArrivals, make_next: Next
    ) -> None:
        self._gateway = gateway
        self._security = security
        self._arrivals = arrivals
        self._make_next = make_next
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._header = bytearray(HEADER_BYTES_MAX)
        self._filled = 0
        self._proxy = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._proxy = address_of(transport.get_extra_info("peername"))
        if not self._security.trusts(self._proxy):
            self.refuse("not from a trusted proxy")
            return
        self._arrivals.enter(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEADER_S, self.refuse, "no whole PROXY protocol header in time")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._header)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        arrived = bytes(self._header[: self._filled])
        try:
            header = parse(arrived)
        except ProxyHeaderWrong as wrong:
            self.refuse(str(wrong))
            return
        if header is not None:
            self._hand_over(header.source, arrived[header.size :])

    def _hand_over(self, source: Peername | None, rest: bytes) -> None:
        self._leave()
        transport = self._transport
        assert transport is not None
        successor = self._make_next(source)
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if rest and not transport.is_closing():
            memoryview(successor.get_buffer(-1))[: len(rest)] = rest
            successor.buffer_updated(len(rest))

    def refuse(self, reason: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._gateway.metrics.hung_up.labels("proxy_protocol").inc()
        self._gateway.complaints.log(
            "no PROXY protocol header", listener=self._security.name, proxy=self._proxy, reason=reason
        )
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

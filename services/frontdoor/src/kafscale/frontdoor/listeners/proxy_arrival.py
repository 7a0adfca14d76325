"""A new connection on a listener behind a proxy, until the proxy has named the client.

Laws: a connection that does not come from a trusted network, or does not begin with a header, is closed before any
other byte is looked at. A header must be whole within `HEADER_S`. Where too many wait for theirs, a further one closes
the oldest.
"""

import asyncio
from typing import Final

from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.arrival import Arrival, Arrivals, Next
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.listeners.listeners import address_of
from kafscale.frontdoor.listeners.proxy_protocol import HEADER_BYTES_MAX, ProxyHeaderWrong, parse

HEADER_S: Final = 5.0


class ProxyArrival(Arrival):
    def __init__(
        self, gateway: Gateway, security: ListenerSecurity, arrivals: Arrivals, make_next: Next
    ) -> None:
        super().__init__(arrivals)
        self._gateway = gateway
        self._security = security
        self._make_next = make_next
        self._header = bytearray(HEADER_BYTES_MAX)
        self._filled = 0
        self._proxy = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy = address_of(transport.get_extra_info("peername"))
        if not self._security.trusts(self._proxy):
            self._refuse("not from a trusted proxy")
            return
        if self._arrivals.full:
            self._arrivals.oldest.make_room()
        self.wait(HEADER_S, self._is_late)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._header)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        arrived = bytes(self._header[: self._filled])
        try:
            header = parse(arrived)
        except ProxyHeaderWrong as wrong:
            self._refuse(str(wrong))
            return
        if header is not None:
            self.hand_over(self._make_next(header.source), arrived[header.size :])

    def make_room(self) -> None:
        self._refuse("too many connections wait for their header")

    def _is_late(self) -> None:
        self._refuse("no whole PROXY protocol header in time")

    def _refuse(self, reason: str) -> None:
        if not self.is_open:
            return
        self._gateway.metrics.hung_up.labels("proxy_protocol").inc()
        self._gateway.warnings.log(
            "no PROXY protocol header", listener=self._security.name, proxy=self._proxy, reason=reason
        )
        self.abort()

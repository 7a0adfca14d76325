"""What stands between a listening socket and a client's connection, by the security of the listener.

A plain listener has nothing there. Otherwise the header of a proxy comes first, then the wait for the rate of new
connections, then TLS, then the connection.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from kafscale.frontdoor.authentication.login import ListenerLogins
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.arrival import Arrivals, Peername
from kafscale.frontdoor.listeners.handshake_turns import HandshakeTurns
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.listeners.proxy_arrival import ProxyArrival
from kafscale.frontdoor.listeners.tls_contexts import CertificateWatch, ListenerTls
from kafscale.frontdoor.listeners.tls_stream import TlsStream
from kafscale.frontdoor.quotas.connection_rates import ConnectionRates
from kafscale.frontdoor.quotas.paced_arrival import PacedArrivals
from kafscale.runtime.metrics import Metrics


class Entrances:
    """The entrances of one process. `run` keeps the certificates current."""

    def __init__(
        self,
        gateway: Gateway,
        securities: Mapping[str, ListenerSecurity],
        tls: Mapping[str, ListenerTls],
        metrics: Metrics,
        logins: Mapping[str, ListenerLogins],
        rates: ConnectionRates,
    ) -> None:
        """All by listener; `tls` and `logins` for those that have it."""
        self._paced = PacedArrivals(rates, gateway)
        self._logins = logins
        self._gateway = gateway
        self._securities = securities
        self._tls = tls
        self._turns = HandshakeTurns(gateway.clock)
        self._outcomes = metrics.counters("tls_handshakes_total")
        self.arrivals = Arrivals()
        self.certificates = CertificateWatch(tls, metrics)

    def factory(self, listener: str) -> Callable[[], asyncio.BufferedProtocol]:
        """The factory of protocols for the server of this listener."""
        security = self._securities[listener]
        behind = partial(self._paced.behind, listener, partial(self._connection, security))
        if security.proxy_protocol:
            return partial(ProxyArrival, self._gateway, security, self.arrivals, behind)
        return behind

    def _connection(
        self, security: ListenerSecurity, peername: Peername | None = None
    ) -> asyncio.BufferedProtocol:
        connection = ClientConnection(self._gateway, security, peername, self._logins.get(security.name))
        if security.tls is None:
            return connection
        return TlsStream(
            connection,
            self._tls[security.name],
            turns=self._turns,
            outcomes=self._outcomes,
            scratch=self._gateway.scratch,
        )

    async def run(self) -> None:
        """Until cancelled."""
        if self._tls:
            await self.certificates.run()

    def close(self) -> None:
        """Closes the connections that the gateway does not know yet."""
        self.arrivals.close()
        self._paced.close()

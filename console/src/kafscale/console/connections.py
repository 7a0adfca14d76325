"""The bounds of the page's connections: how many there are, and how long the first head of one may take.

Law: beyond CONNECTIONS_MAX a new connection is closed at once, and one that has sent no whole head after HEAD_S is
closed too. So a client that holds connections open holds none for long, and takes no memory beyond these.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

CONNECTIONS_MAX: Final = 256
HEAD_S: Final = 10.0


class Connections:
    """Makes the protocol of each connection that a listener accepts."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._waiting: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """The connections that have sent no head."""

    def __len__(self) -> int:
        return len(self._server.connections)

    def __call__(self) -> asyncio.BaseProtocol:
        if len(self) >= CONNECTIONS_MAX:
            return _Closed()
        protocol = self._server()
        loop = asyncio.get_running_loop()
        self._waiting[protocol] = loop.call_later(HEAD_S, self._too_slow, protocol)
        return protocol

    def head_arrived(self, protocol: web.RequestHandler) -> None:
        if (timer := self._waiting.pop(protocol, None)) is not None:
            timer.cancel()

    def _too_slow(self, protocol: web.RequestHandler) -> None:
        self._waiting.pop(protocol, None)
        if protocol.transport is not None:  # it is None once the connection is lost
            protocol.transport.abort()

    def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()

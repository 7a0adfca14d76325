"""TCP in memory: what asyncio's `create_server` and `create_connection` give, over a network that a test rules.

Bytes of one direction arrive in order, in the pieces in which they were written. A writer is paused while its peer has
more unread bytes than its limit. An end that closes is heard as an end of file, behind all bytes that it has sent; the
end of a killed process, and a connection that was silent for too long, as a reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafscale.testkit.memory_grpc.network import Connection, Network

HIGH_WATER_BYTES: Final = 64 << 10
CLOSED: Final = "closed"
FIRST_CLIENT_PORT: Final = 40_000
Factory = Callable[[], asyncio.BaseProtocol]


class MemorySocket:
    """What a socket says of itself."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        """It holds nothing."""


class MemoryListener:
    """What is used of an `asyncio.Server`."""

    def __init__(self, network: Network, node: str, socket: MemorySocket, factory: Factory) -> None:
        """Raises OSError if the address is taken."""
        host, port = socket.getsockname()
        port = port or network.free_port()
        self.sockets = (MemorySocket(host, port),)
        self.node = node
        self._network, self._factory, self._address = network, factory, f"{host}:{port}"
        if self._address in network.servers:
            raise OSError(f"the address {self._address} is in use")
        network.servers[self._address] = self

    def accept(self, connection: Connection) -> None:
        MemoryTransport(connection, self.node).begin(self._factory())

    def is_serving(self) -> bool:
        return self._network.servers.get(self._address) is self

    def close(self) -> None:
        """Connections stay."""
        if self.is_serving():
            del self._network.servers[self._address]


async def connect(network: Network, node: str, address: str, factory: Factory) -> MemoryTransport:
    """Raises ConnectionRefusedError."""
    ends: list[MemoryTransport] = []

    def made(connection: Connection) -> None:
        ends.append(MemoryTransport(connection, node))

    if await network.connect(node, address, made) is None:
        raise ConnectionRefusedError(f"nobody listens at {address}")
    ends[0].begin(factory())
    return ends[0]


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, connection: Connection, node: str) -> None:
        super().__init__()
        is_client = node == connection.client
        self._connection, self._node = connection, node
        self._peer = connection.server if is_client else connection.client
        self._way = connection.forth if is_client else connection.back
        self._protocol: asyncio.BaseProtocol | None = None
        self._received: deque[bytes] = deque()
        self._reading = True
        self._end: str | None = None
        """Why the other end is gone. It is heard behind what was received."""
        self._closing = self._lost = self._writer_waits = False
        self._unread_bytes = 0
        """What this end has sent, and the other has not read."""
        self._high_bytes = HIGH_WATER_BYTES
        connection.ends[node] = self
        connection.on_broken[node] = self._broken

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._feed()

    # -- what protocols call ---------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "peername" | "sockname":
                return ("127.0.0.1", FIRST_CLIENT_PORT)
            case _:
                return default

    def write(self, data: Any) -> None:
        if self._closing:
            return
        taken = bytes(data)
        self._unread_bytes += len(taken)
        self._way.send(lambda: self._other().arrived(taken))
        if self._unread_bytes > self._high_bytes and not self._writer_waits:
            self._writer_waits = True
            self._protocol.pause_writing()  # type: ignore[union-attr]

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_WATER_BYTES if high is None else high

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        asyncio.get_running_loop().call_soon(self._feed)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "it has begun"
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self._close(CLOSED)

    def abort(self) -> None:
        self._close("connection reset by peer")

    # -- what arrives ----------------------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        if not self._closing:
            self._received.append(data)
            self._feed()

    def _other(self) -> MemoryTransport:
        other = self._connection.ends[self._peer]
        assert isinstance(other, MemoryTransport), other
        return other

    def _feed(self) -> None:
        while self._received and self._reading and not self._closing and self._protocol is not None:
            data = self._received.popleft()
            self._other().was_read(len(data))
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                self._fill(self._protocol, data)
            else:
                self._protocol.data_received(data)  # type: ignore[attr-defined]
        if self._end is not None and not self._received and self._protocol is not None:
            self._finish(self._end)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        buffer = memoryview(protocol.get_buffer(-1))
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        if taken < len(data):
            self._received.appendleft(data[taken:])
        protocol.buffer_updated(taken)

    def was_read(self, count: int) -> None:
        self._unread_bytes -= count
        if self._writer_waits and self._unread_bytes <= self._high_bytes // 4:
            self._writer_waits = False
            self._connection.network.run_as(self._node, self._writable)

    def _writable(self) -> None:
        if not self._closing and not self._writer_waits:
            self._protocol.resume_writing()  # type: ignore[union-attr]

    # -- the end ---------------------------------------------------------------------------------------

    def _broken(self, why: str) -> None:
        """The other end is gone."""
        if not self._closing:
            self._end = why
            if why != CLOSED:
                self._received.clear()
            self._feed()

    def _finish(self, why: str) -> None:
        self._end = None
        if why == CLOSED:
            self._protocol.eof_received()  # type: ignore[union-attr]
        self._closing = True
        self._lose(None if why == CLOSED else ConnectionResetError(why))

    def _close(self, why: str) -> None:
        if not self._closing:
            self._closing = True
            self._connection.on_broken.pop(self._node, None)
            self._connection.end_by(self._node, why)
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._received.clear()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)  # type: ignore[union-attr]

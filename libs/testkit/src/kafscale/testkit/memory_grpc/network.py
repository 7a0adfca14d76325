"""The network between processes in memory: how long messages take, who can reach whom, and who is gone.

A node is a process. Messages of one direction of a connection arrive in order. While two nodes are cut off from each
other, their messages wait, as TCP repeats them; a connection that is cut for SILENCE_S breaks at both ends, as by
gRPC's keepalive. Time is the running loop's, so on a loop with virtual time the network is deterministic.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

SILENCE_S: Final = 10.0
"""`keepalive_time` and `keepalive_timeout` of all channels and servers."""
PORTS_FROM: Final = 20_000

Deliver = Callable[[], None]


class Serves(Protocol):
    """A server in the network."""

    node: str

    def accept(self, connection: Connection) -> None: ...


def _as_it_is(_node: str, deliver: Deliver) -> None:
    deliver()


@dataclass(eq=False)
class Network:
    """`delay_s`: of each message between two nodes. `run_as`: runs what a node receives in its name."""

    delay_s: Callable[[str, str], float] = lambda _source, _target: 0.0
    run_as: Callable[[str, Deliver], None] = _as_it_is
    servers: dict[str, Serves] = field(default_factory=dict)
    """By address."""
    connections: list[Connection] = field(default_factory=list)
    _cuts: set[frozenset[str]] = field(default_factory=set)
    _last_port: int = PORTS_FROM

    def free_port(self) -> int:
        self._last_port += 1
        return self._last_port

    def reaches(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) not in self._cuts

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between the two, until `heal`."""
        self._cuts.add(frozenset((one, other)))
        for connection in self._between(one, other):
            connection.went_silent()

    def heal(self, one: str, other: str) -> None:
        self._cuts.discard(frozenset((one, other)))
        for connection in self._between(one, other):
            connection.heard_again()

    def drop(self, node: str, why: str) -> None:
        """The process of a node was killed: its connections break, and its addresses are free."""
        self.drop_connections(node, why)
        self.servers = {address: server for address, server in self.servers.items() if server.node != node}

    def drop_connections(self, node: str, why: str) -> None:
        """They break at this node at once, and at the other end as soon as the news arrives."""
        for connection in [each for each in self.connections if node in each.nodes]:
            connection.end_by(node, why)

    def _between(self, one: str, other: str) -> list[Connection]:
        return [each for each in self.connections if each.nodes == frozenset((one, other))]

    async def connect(
        self, source: str, address: str, made: Callable[[Connection], None] = lambda _: None
    ) -> Connection | None:
        """None: nobody listens there. Waits as long as the two are cut off from each other. `made` is called before
        anything else arrives at this end."""
        server = self.servers.get(address)
        if server is None:
            await asyncio.sleep(self.delay_s(source, address))
            return None
        connection = Connection(self, source, server.node)
        connected: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def arrived() -> None:
            if self.servers.get(address) is not server:
                connection.back.send(lambda: connection.fail("connection refused"))
                return
            server.accept(connection)
            connection.back.send(accepted)

        def accepted() -> None:
            if not connected.done():
                del connection.on_broken[source]
                made(connection)
                connected.set_result(True)

        def gone(_why: str) -> None:
            if not connected.done():
                connected.set_result(False)

        connection.on_broken[source] = gone
        connection.forth.send(arrived)
        try:
            is_accepted = await connected
        except BaseException:
            connection.end_by(source, "the connection was given up")
            raise
        return connection if is_accepted else None


class Connection:
    """Between a client and a server. `forth` is the way to the server."""

    def __init__(self, network: Network, client: str, server: str) -> None:
        self.network = network
        self.client, self.server = client, server
        self.nodes = frozenset((client, server))
        self.forth = _Way(network, client, server)
        self.back = _Way(network, server, client)
        self.why_broken: str | None = None
        self.on_broken: dict[str, Callable[[str], None]] = {}
        """By node: called once when the connection breaks."""
        self.ends: dict[str, object] = {}
        """By node: what it has made of the connection."""
        self._silence: asyncio.TimerHandle | None = None
        network.connections.append(self)
        if not network.reaches(client, server):
            self.went_silent()

    def fail(self, why: str) -> None:
        """At both ends at once."""
        if self.why_broken is None:
            self.why_broken = why
            self._close()
            for node in (self.client, self.server):
                self._tell(node)

    def end_by(self, node: str, why: str) -> None:
        """One end is gone. The other end hears it with the next message: later, if the two are cut off."""
        if self.why_broken is not None:
            return
        self.why_broken = why
        self._tell(node)
        way = self.forth if node == self.client else self.back
        other = self.server if node == self.client else self.client

        def heard() -> None:
            self._close()
            self._tell(other)

        way.send(heard)

    def went_silent(self) -> None:
        if self._silence is None:
            loop = asyncio.get_running_loop()
            self._silence = loop.call_later(SILENCE_S, self._silent_too_long)

    def heard_again(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self.forth.go_on()
        self.back.go_on()

    def _silent_too_long(self) -> None:
        why = self.why_broken or "keepalive watchdog timeout"
        self.why_broken = why
        self._close()
        for node in (self.client, self.server):
            self._tell(node)

    def _tell(self, node: str) -> None:
        broken = self.on_broken.pop(node, None)
        if broken is not None:
            assert self.why_broken is not None, "it is broken"
            why = self.why_broken
            self.network.run_as(node, lambda: broken(why))

    def _close(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self.forth.close()
        self.back.close()
        if self in self.network.connections:
            self.network.connections.remove(self)


class _Way:
    """One direction. What is sent arrives in order."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._source, self._target = source, target
        self._waiting: deque[tuple[float, Deliver]] = deque()
        self._timer: asyncio.Handle | None = None
        self._closed = False

    def send(self, deliver: Deliver) -> None:
        if self._closed:
            return
        due_s = asyncio.get_running_loop().time() + self._network.delay_s(self._source, self._target)
        if self._waiting:
            due_s = max(due_s, self._waiting[-1][0])
        self._waiting.append((due_s, deliver))
        self._wait()

    def go_on(self) -> None:
        self._wait()

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        if self._timer is None and self._waiting and self._network.reaches(self._source, self._target):
            loop, due_s = asyncio.get_running_loop(), self._waiting[0][0]
            now = due_s <= loop.time()
            self._timer = loop.call_soon(self._arrive) if now else loop.call_at(due_s, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        if self._waiting and self._network.reaches(self._source, self._target):
            _, deliver = self._waiting.popleft()
            self._network.run_as(self._target, deliver)
        self._wait()

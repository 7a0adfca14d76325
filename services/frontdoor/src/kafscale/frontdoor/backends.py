"""The services behind the front door: one channel per live instance, taken from the live view.

Laws: a channel lives as long as its instance is registered. When the registration is gone, nothing new is sent; open
requests get a short grace period for replies that are on their way, and are then lost. Streams are opened at first use.
A pool's READY instances are in the order of their nodes, so that equal views choose equally.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec
from kafscale.frontdoor.api import Api, Backend
from kafscale.runtime.stream.client import PendingReply
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.options import Stream
from kafscale.runtime.tracing import Span
from kafscale.storage.coordination import NO_NODE, rendezvous
from kafscale.storage.membership.members import Instance
from kafscale.wire.buffers import Buffer

RETIRED_GRACE_S: Final = 0.5


class ServiceStream(Protocol):
    """What the front door needs of runtime's StreamClient."""

    def send(
        self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0, patient: bool = False
    ) -> PendingReply: ...

    @property
    def writable(self) -> bool: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


Connect = Callable[[Instance, Stream], ServiceStream]


class Live(Protocol):
    """What the front door needs of storage's LiveView."""

    def instances(self) -> tuple[Instance, ...]: ...

    def subscribe(self, listener: Callable[..., None]) -> Callable[[], None]: ...


class Channel:
    """One live instance of a service. Equality is identity: another boot is another channel."""

    __slots__ = ("_bulk", "_connect", "_control", "_tasks", "_waiting", "instance", "node_id")

    def __init__(self, instance: Instance, connect: Connect, tasks: asyncio.TaskGroup) -> None:
        self.instance = instance
        self.node_id = instance.node_id
        self._connect = connect
        self._tasks = tasks
        self._waiting: list[Callable[[], None]] = []
        self._bulk: ServiceStream | None = None
        self._control: ServiceStream | None = None

    def send(self, api: Api, span: Span | None, meta: RequestMeta, body: Sequence[Buffer]) -> PendingReply:
        """All requests of one connection take the same lane, so they arrive in the order of these calls. `span`: of the
        client's request, if it is traced."""
        client = self._bulk if api.stream is Stream.BULK else self._control
        if client is None:
            client = self._open(api.stream)
        if span is not None:
            return self._send_traced(span, client, meta, body)
        return client.send(meta, body, lane=meta.connection_id, patient=api.patient)

    def _send_traced(
        self, span: Span, client: ServiceStream, meta: RequestMeta, body: Sequence[Buffer]
    ) -> PendingReply:
        """Sends with a span that ends with the reply. The service's span is its child; the difference is the
        transport."""
        name, where = f"ask {self.instance.role}", {"kafscale.instance": self.instance.id}
        asked = span.child(name, where, kind="client")
        meta = msgspec.structs.replace(meta, traceparent=asked.traceparent)
        pending = client.send(meta, body, lane=meta.connection_id)
        if pending.waiting is not None:
            pending.waiting.on_taken = lambda: asked.event("sent")
        pending.future.add_done_callback(lambda _: asked.end())
        return pending

    def _open(self, stream: Stream) -> ServiceStream:
        if stream is Stream.BULK:
            client = self._bulk = self._connect(self.instance, stream)
        else:
            client = self._control = self._connect(self.instance, stream)
        return client

    @property
    def congested(self) -> bool:
        """More than half of the queue to the instance is full, so its senders should pause."""
        return self._bulk is not None and not self._bulk.writable

    def when_drained(self, then: Callable[[], None]) -> None:
        """Calls `then` once when it is not congested any more, or gone."""
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._tasks.create_task(self._drained())

    async def _drained(self) -> None:
        if self._bulk is not None:
            await self._bulk.drain()
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    async def close(self) -> None:
        for client in (self._bulk, self._control):
            if client is not None:
                await client.close()


class Pool:
    """The instances of one role."""

    def __init__(
        self,
        backend: Backend,
        live: Live,
        connect: Connect,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.backend = backend
        self._live = live
        self._connect = connect
        self._tasks = tasks
        self._channels: dict[str, Channel] = {}
        self._by_node: dict[int, Channel] = {}
        self._listeners: list[Callable[[], None]] = []
        self.ready: tuple[Channel, ...] = ()
        self._unsubscribe = live.subscribe(self._changed)
        self._changed()

    def by_id(self, instance_id: str) -> Channel | None:
        """A registered instance in any state."""
        return self._channels.get(instance_id)

    def by_node(self, node_id: int) -> Channel | None:
        return self._by_node.get(node_id)

    def has(self, channel: Channel) -> bool:
        return self._channels.get(channel.instance.id) is channel

    def preferred(self, topic_id: bytes, partition: int) -> Channel | None:
        """The READY instance that rendezvous hashing names for the partition."""
        ready = self.ready
        if len(ready) <= 1:
            return ready[0] if ready else None
        node_id = rendezvous(topic_id, partition, [channel.node_id for channel in ready])
        return None if node_id == NO_NODE else self._by_node[node_id]

    def another(self, than: Collection[Channel]) -> Channel | None:
        """A READY instance that is none of these."""
        return next((channel for channel in self.ready if channel not in than), None)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Called after each change of the instances."""
        self._listeners.append(listener)

    def _changed(self, *_: object) -> None:
        before, now = self._channels, {}
        for instance in self._live.instances():
            channel = before.get(instance.id)
            if channel is None or channel.instance.address != instance.address:
                channel = Channel(instance, self._connect, self._tasks)
            channel.instance = instance
            now[instance.id] = channel
        self._channels = now
        self._by_node = {channel.node_id: channel for channel in now.values()}
        ready = [channel for channel in now.values() if channel.instance.is_ready]
        self.ready = tuple(sorted(ready, key=lambda channel: channel.node_id))
        for instance_id, channel in before.items():
            if now.get(instance_id) is not channel:
                self._tasks.create_task(self._retire(channel))
        for listener in self._listeners:
            listener()

    @staticmethod
    async def _retire(channel: Channel) -> None:
        await asyncio.sleep(RETIRED_GRACE_S)
        await channel.close()

    async def close(self) -> None:
        self._unsubscribe()
        for channel in tuple(self._channels.values()):
            await channel.close()

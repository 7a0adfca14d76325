"""The composition root: views of the cluster, the front door on top of them, and the listening sockets.

Sockets are bound before anything else, because a registration names their ports, and listen only when the
views are loaded: until then a client is refused, and asks the next front door.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog
from kafscale.frontdoor.access import open_access
from kafscale.frontdoor.assembly import ROLES, FrontDoor, Means, Views, assemble, connect_streams
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.listeners.entrances import Entrances
from kafscale.frontdoor.listeners.listeners import ListenersWrong
from kafscale.frontdoor.listeners.tls_contexts import ListenerTls
from kafscale.frontdoor.quotas.connection_rates import ConnectionRates
from kafscale.frontdoor.quotas.metering import window_of
from kafscale.frontdoor.quotas.usage_page import SharedUsage, UsagePage, page_bytes
from kafscale.frontdoor.quotas.usage_peers import USAGE, UsagePeers
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.process import CannotServe, Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.stream.inbound import Handler
from kafscale.storage.cluster_record import ClusterIdView
from kafscale.storage.decoy_key import DecoyKeyDamaged
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Listener, LiveView
from kafscale.storage.owner_views import OwnersView, SlotsView
from kafscale.storage.topics import TopicsView

log = structlog.get_logger("kafscale.frontdoor")

ROLE: Final = "frontdoor"
BACKLOG: Final = 1024
REFRESH_TIMEOUT_S: Final = 1.0
NO_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What a kernel without IPv6 says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundListener:
    """A bound socket that does not listen yet."""

    name: str
    host: str
    socket: socket.socket

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def where(self) -> Listener:
        """The address, with the real port where 0 was configured."""
        return Listener(name=self.name, host=self.host, port=self.port)


def bind_all(binds: Sequence[Listener], *, shared: bool = False) -> tuple[BoundListener, ...]:
    """`shared`: other sockets of ours will have the same ports. Raises ListenersWrong."""
    doors: list[BoundListener] = []
    for bind in binds:
        try:
            doors.append(BoundListener(name=bind.name, host=bind.host, socket=_bound(bind, shared=shared)))
        except OSError as error:
            _close_all(doors)
            where = f"{bind.host or '*'}:{bind.port}"
            raise ListenersWrong(f"listener {bind.name} cannot have {where}: {error.strerror}") from error
    return tuple(doors)


def bind_for_workers(binds: Sequence[Listener], workers: int) -> tuple[tuple[BoundListener, ...], ...]:
    """The same ports once for each worker. Raises ListenersWrong.

    SO_REUSEPORT would also share a port with a foreign process that sets it, so the ports are first bound without.
    """
    first = bind_all(binds)
    ports = [door.where for door in first]
    _close_all(first)
    found: list[tuple[BoundListener, ...]] = []
    try:
        for _ in range(workers):
            found.append(bind_all(ports, shared=True))  # noqa: PERF401  (what is bound must be closed again)
    except ListenersWrong:
        for doors in found:
            _close_all(doors)
        raise
    return tuple(found)


def _close_all(doors: Sequence[BoundListener]) -> None:
    for door in doors:
        door.socket.close()


def _bound(bind: Listener, *, shared: bool) -> socket.socket:
    """An empty host is IPv6 and IPv4 in one socket, or IPv4 alone where the kernel has no IPv6."""
    found = socket.getaddrinfo(bind.host or None, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if not bind.host:
        found.sort(key=lambda each: each[0] != socket.AF_INET6)
    (family, _, _, _, address), *others = found
    try:
        return _listening(family, address, shared=shared)
    except OSError as error:
        if error.errno not in NO_FAMILY or not others:
            raise
        return _listening(others[0][0], others[0][4], shared=shared)


def _listening(family: int, address: Any, *, shared: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


class Service:
    """A front door in one process."""

    def __init__(
        self,
        settings: FrontdoorSettings,
        means: Means,
        *,
        etcd: EtcdClient,
        keyspace: Keyspace,
        topics: TopicsView,
        tls: Mapping[str, ListenerTls],
    ) -> None:
        """`tls`: of the listeners that have it, by name."""
        self._owners = OwnersView(etcd, keyspace)
        self._slots = SlotsView(etcd, keyspace)
        self._live = {role: LiveView(etcd, keyspace, role.value) for role in ROLES}
        self.front_doors = LiveView(etcd, keyspace, ROLE)
        self._cluster_id = ClusterIdView(etcd, keyspace)
        self._topics = topics
        self._tasks = means.tasks
        self._servers: list[asyncio.Server] = []
        self._settings = settings
        self._node_id = means.node_id
        self._access = means.access.copy
        self.door: FrontDoor = assemble(settings, self._views(), means)
        securities = settings.securities()
        self._entrances = Entrances(
            self.door.gateway,
            securities,
            tls,
            means.metrics,
            self.door.logins(securities),
            ConnectionRates(settings.connection_rates(), means.access.quotas, window_of(settings)),
        )
        watch_views(
            means.metrics,
            topics=topics.view,
            owners=self._owners,
            slots=self._slots,
            **{f"live_{role.value}": view.view for role, view in self._live.items()},
            **means.access.views,
        )

    def _views(self) -> Views:
        return Views(
            topics=self._topics,
            owners=self._owners,
            slots=self._slots,
            live=self._live,
            front_doors=self.front_doors,
            cluster_id=self._cluster_id,
        )

    async def load(self) -> None:
        """Returns when every view has been read once."""
        lives = [*self._live.values(), self.front_doors]
        self._tasks.create_task(self._owners.run())
        self._tasks.create_task(self._slots.run())
        self._tasks.create_task(self._cluster_id.run())
        for live in lives:
            self._tasks.create_task(live.run())
        self._tasks.create_task(self.door.gateway.sweep())
        self._tasks.create_task(self.door.gateway.metering.share())
        if self._access is not None:
            await self._access.ready()
        self._tasks.create_task(self._entrances.run())
        await self._topics.ready()
        await self._owners.ready()
        await self._slots.ready()
        await self._cluster_id.ready()
        for live in lives:
            await live.loaded()

    @property
    def listening(self) -> bool:
        return any(server.is_serving() for server in self._servers)

    async def listen(self, doors: Sequence[BoundListener]) -> None:
        loop = asyncio.get_running_loop()
        for door in doors:
            factory = self._entrances.factory(door.name)
            self._servers.append(await loop.create_server(factory, sock=door.socket, backlog=BACKLOG))
            log.info("listening", listener=door.name, port=door.port)

    async def drain(self) -> None:
        """Call it once the registration says that we leave. Clients with our address still connect for a while."""
        with suppress(EtcdError, TimeoutError):  # without etcd, the others are those of the last watch event
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                await self.front_doors.refresh()
        if any(other.is_ready for other in self.front_doors.instances() if other.node_id != self._node_id):
            await asyncio.sleep(self._settings.frontdoor_notice_ms / 1000)
        for server in self._servers:
            server.close()
        self._entrances.close()
        await self.door.gateway.drain(self._settings.drain_timeout_ms)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._entrances.close()
        for connection in tuple(self.door.gateway.connections):
            connection.abort()
        await self.door.close()


def usage_peers(
    runtime: Runtime[FrontdoorSettings], front_doors: LiveView, page: UsagePage
) -> dict[int, Handler]:
    """Asks the others until the process ends; the handlers of what they ask. The caller runs the view."""
    connect = connect_streams(runtime.settings, runtime.dial)
    peers = UsagePeers(page, front_doors, runtime.registration.instance.id, connect)
    runtime.task_group.create_task(peers.run())
    return {USAGE: peers.answer}


@asynccontextmanager
async def build(
    runtime: Runtime[FrontdoorSettings], *, doors: Sequence[BoundListener], tls: Mapping[str, ListenerTls]
) -> AsyncIterator[ServiceParts]:
    """One process: it serves the clients itself."""
    settings = runtime.settings
    try:
        access = await open_access(settings, runtime.access, runtime.etcd, runtime.clock)
    except DecoyKeyDamaged as damaged:
        raise CannotServe(str(damaged)) from damaged
    in_cluster = settings.quota_scope == "cluster"
    page = UsagePage(memoryview(bytearray(page_bytes(1))), 1) if in_cluster else None
    means = Means(
        node_id=runtime.registration.instance.node_id,
        clock=runtime.clock,
        watch=runtime.watch,
        tasks=runtime.task_group,
        metrics=runtime.metrics,
        tracer=runtime.tracer,
        budget=runtime.budget,
        acked=AckedRevision(),
        connect=connect_streams(settings, runtime.dial),
        authorization=runtime.authorization,
        access=access,
        usage=None if page is None else SharedUsage(page, 0),
    )
    runtime.metrics.watch("workers_ready", lambda: service.listening)
    runtime.metrics.watch("worker_deaths_total", lambda: 0)
    service = Service(
        settings, means, etcd=runtime.etcd, keyspace=runtime.keyspace, topics=runtime.topics, tls=tls
    )

    peers = {} if page is None else usage_peers(runtime, service.front_doors, page)

    async def before_ready() -> None:
        await service.load()
        await service.listen(doors)

    try:
        yield ServiceParts(
            before_ready=before_ready,
            drain=service.drain,
            peers=peers,
            announce_after_s=settings.frontdoor_announce_after_ms / 1000,
        )
    finally:
        await service.close()

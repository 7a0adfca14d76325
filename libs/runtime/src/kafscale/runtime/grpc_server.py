"""The gRPC side of a service: health, the request streams, and the calls of transactions.

It listens before the service is built, because a registration names the port; until the handlers are
offered, requests are answered REFUSED, which is definite.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]
from kafscale.runtime.addresses import join_address, split_address
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.grpc_identity import GrpcIdentity
from kafscale.runtime.health import Health
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import ServiceParts
from kafscale.runtime.stream.apis import ApiMetrics
from kafscale.runtime.stream.inbound import Handler
from kafscale.runtime.stream.options import SERVER_OPTIONS
from kafscale.runtime.stream.server import StreamLimits, StreamServer
from kafscale.runtime.tracing import Tracer
from kafscale.runtime.transactions.serving import TransactionServer

STOP_GRACE_S: Final = 1.0
EVERY_INTERFACE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared with, not bound)


def open_server() -> grpc.aio.Server:
    """On the running loop."""
    return grpc.aio.server(options=SERVER_OPTIONS)


class GrpcFace:
    def __init__(
        self,
        *,
        health: Health,
        clock: Clock,
        watch: LoopWatch,
        memory_bytes: int,
        metrics: Metrics,
        server: Callable[[], grpc.aio.Server] = open_server,
    ) -> None:
        """Half of the memory is for what streams hold; services account for what they keep of it."""
        self._bulk: dict[int, Handler] = {}
        self._control: dict[int, Handler] = {}
        self._health = health
        self._metrics = metrics
        self._open = server
        self._server: grpc.aio.Server | None = None
        self.streams = StreamServer(
            bulk=self._bulk,
            control=self._control,
            clock=clock,
            watch=watch,
            limits=StreamLimits(held_bytes_total_max=memory_bytes // 2),
        )
        self.transactions = TransactionServer()

    async def start(self, address: str, identity: GrpcIdentity | None) -> int:
        """The port that it listens on. RuntimeError when it cannot. Without an identity anybody may connect."""
        split_address(address)
        self._server = self._open()
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        self.streams.add_to(self._server)
        self.transactions.add_to(self._server)
        if identity is None:
            port = self._server.add_insecure_port(address)
        else:
            self.streams.only_front_doors = True
            self.transactions.checks_roles = True
            port = self._server.add_secure_port(address, identity.server_credentials())
        await self._server.start()
        return port

    def offer(self, parts: ServiceParts, tracer: Tracer | None) -> None:
        self.streams.tracer = self.transactions.tracer = tracer
        keys = sorted({*parts.bulk, *parts.control})
        if keys:
            self.streams.count(ApiMetrics(self._metrics, keys))
        self._bulk.update(parts.bulk)
        self._control.update({**parts.control, **parts.peers})
        self.transactions.offer(parts.joins, parts.ends)

    async def stop(self) -> None:
        if self._server is not None:
            async with asyncio.timeout(2 * STOP_GRACE_S):
                await self._server.stop(STOP_GRACE_S)


def advertised(listen: str, advertise: str | None, port: int) -> str:
    """Where others find us; a port 0 in either stands for the one we got."""
    host, wanted_port = split_address(advertise or listen)
    if host in EVERY_INTERFACE:
        host = socket.gethostname()
    return join_address(host, wanted_port or port)


def advertised_http(bound: str, grpc: str) -> str:
    """Where others find the HTTP page: the host that is advertised for gRPC, if it listens on every interface."""
    host, port = split_address(bound)
    return join_address(split_address(grpc)[0] if host in EVERY_INTERFACE else host, port)


def names_of(listen: str, advertise: str | None) -> frozenset[str]:
    """The names of this machine: those that `advertised` and `advertised_http` may give."""
    return frozenset({split_address(advertise or listen)[0].lower(), socket.gethostname().lower()})

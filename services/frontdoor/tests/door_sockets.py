"""Real sockets in front of a front door, real streams behind it, and the requests of a client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from struct import pack, unpack
from typing import ParamSpec

import grpc.aio
import uvloop
from door_fakes import FakeLive, FakeOwners, FakeSlots, FakeTopics, instance
from door_harness import settled, until
from kafscale.access.quota import QuotaTable
from kafscale.frontdoor.access import AccessMeans
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.assembly import ROLES, FrontDoor, Means, Views, assemble, connect_streams
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.listeners.entrances import Entrances
from kafscale.frontdoor.listeners.tls_contexts import open_all
from kafscale.frontdoor.quotas.connection_rates import ConnectionRates
from kafscale.frontdoor.quotas.metering import window_of
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import dial_by
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.options import SERVER_OPTIONS
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import offset_commit, produce

P = ParamSpec("P")
API_VERSIONS_0 = pack(">ihhih", 10, 18, 0, 9, -1)


@dataclass
class Service:
    """Answers Produce and OffsetCommit at once, echoes Fetch, holds JoinGroup and InitProducerId for ever.

    `fetched`: the answer of each Fetch in place of an echo."""

    produced: list[bytes] = field(default_factory=list)
    commits: list[offset_commit.OffsetCommitRequest] = field(default_factory=list)
    held: list[InboundRequest] = field(default_factory=list)
    cancelled: int = 0
    fetched: bytes | None = None

    def produce(self, request: InboundRequest) -> None:
        message = produce.decode_request(request.body, request.meta.api_version)
        (topic,) = message.topic_data
        (part,) = topic.partition_data
        self.produced.append(bytes(part.records or b""))  # type: ignore[arg-type]
        response = produce.ProduceResponse(
            responses=[
                produce.ProduceResponseTopic(
                    name=topic.name,
                    partition_responses=[
                        produce.ProduceResponsePartition(index=part.index, base_offset=len(self.produced) - 1)
                    ],
                )
            ]
        )
        request.reply(produce.encode_response(response, request.meta.api_version))

    def echo(self, request: InboundRequest) -> None:
        request.reply([bytes(request.body) if self.fetched is None else self.fetched])

    def commit(self, request: InboundRequest) -> None:
        self.commits.append(offset_commit.decode_request(request.body, request.meta.api_version))
        request.reply(offset_commit.encode_response(offset_commit.OffsetCommitResponse(), 9))

    def hold(self, request: InboundRequest) -> None:
        self.held.append(request)
        request.on_cancel(self._count_cancelled)

    def _count_cancelled(self) -> None:
        self.cancelled += 1


@dataclass
class System:
    door: FrontDoor
    service: Service
    metrics: Metrics
    entrances: Entrances
    ports: dict[str, int]
    """By listener."""
    quotas: QuotaTable
    backend: grpc.aio.Server
    """Speaks for every service."""

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """A gRPC server that speaks for every service, and its port."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    streams = StreamServer(
        bulk={0: service.produce, 1: service.echo},
        control={8: service.commit, 11: service.hold, 22: service.hold},
    )
    streams.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(0)


@asynccontextmanager
async def running(
    credentials: CredentialSource | None = None, /, **settings: int | str
) -> AsyncIterator[System]:
    """A front door with a socket for each of its listeners, on free ports. `credentials`: for listeners with SASL."""
    service = Service()
    live = {role: FakeLive() for role in ROLES}
    topics, slots = FakeTopics(), FakeSlots()
    slots.set("g", "1/a")
    topics.add("t", 1, 4)
    chosen = FrontdoorSettings(**settings)  # type: ignore[arg-type]
    views = Views(
        topics=topics,  # type: ignore[arg-type]
        owners=FakeOwners(),
        slots=slots,
        live=live,
        front_doors=FakeLive(),
        cluster_id=str,
    )
    securities = chosen.securities()
    quotas = QuotaTable()
    metrics = Metrics("frontdoor")
    async with serving(service) as (backend, backend_port), asyncio.TaskGroup() as tasks:
        means = Means(
            node_id=7,
            clock=SystemClock(),
            watch=LoopWatch(SystemClock()),
            tasks=tasks,
            metrics=metrics,
            tracer=None,
            budget=MemoryBudget(chosen.memory_bytes),
            acked=AckedRevision(),
            connect=connect_streams(chosen, dial_by(None)),
            authorization=Authorization(None, metrics),
            access=AccessMeans(users=credentials, quotas=quotas),
        )
        door = assemble(chosen, views, means)
        for role in (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR):
            live[role].set(replace(instance(role, 1), address=f"127.0.0.1:{backend_port}"))
        entrances = Entrances(
            door.gateway,
            securities,
            open_all(securities.values()),
            metrics,
            door.logins(securities),
            ConnectionRates(chosen.connection_rates(), quotas, window_of(chosen)),
        )
        loop = asyncio.get_running_loop()
        servers = {
            name: await loop.create_server(entrances.factory(name), "127.0.0.1", 0, backlog=1024)
            for name in securities
        }
        ports = {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
        sweep = tasks.create_task(door.gateway.sweep())
        try:
            yield System(door, service, metrics, entrances, ports, quotas, backend)
        finally:
            for server in servers.values():
                server.close()
            entrances.close()
            await end_all(door.gateway)
            await door.close()
            sweep.cancel()


async def end_all(gateway: Gateway) -> None:
    """Also connections that were accepted before their listener was closed and are made after it. asyncio makes them in
    its next turns; without a transport they would be open sockets that nobody knows."""
    await settled()

    def are_gone() -> bool:
        for connection in tuple(gateway.connections):
            connection.abort()
        return not gateway.connections

    await until(are_gone)


def produce_frame(correlation_id: int, records: bytes, *, acks: int = -1) -> bytes:
    message = produce.ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            produce.ProduceRequestTopic(
                name="t", partition_data=[produce.ProduceRequestPartition(index=0, records=records)]
            )
        ],
    )
    body = b"".join(map(bytes, produce.encode_request(message, 9)))
    return framed(0, 9, correlation_id, body)


def framed(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    whole = encode_request_header(key, version, correlation_id, "test") + body
    return pack(">i", len(whole)) + whole


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (size,) = unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return unpack(">i", data[:4])[0], data[4:]


def on_uvloop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """The loop that front doors run on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        uvloop.run(test(*args, **kwargs))

    return run


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # an alert of TLS too
        await writer.wait_closed()

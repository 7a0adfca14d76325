"""Real sockets in front, real streams behind: what only the two of them together can show."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from struct import pack, unpack
from typing import Any

import grpc.aio
import pytest
import uvloop
from door_fakes import FakeLive, FakeOwners, FakeSlots, FakeTopics, instance
from door_harness import until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.assembly import ROLES, FrontDoor, Means, Views, assemble, connect_streams
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.options import SERVER_OPTIONS
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import join_group, module_of, offset_commit, produce

API_VERSIONS_0 = pack(">ihhih", 10, 18, 0, 9, -1)


@dataclass
class Service:
    """Answers Produce and OffsetCommit at once, echoes Fetch, holds JoinGroup and InitProducerId for ever."""

    produced: list[bytes] = field(default_factory=list)
    commits: list[offset_commit.OffsetCommitRequest] = field(default_factory=list)
    held: list[InboundRequest] = field(default_factory=list)
    cancelled: int = 0

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
        request.reply([bytes(request.body)])

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
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[int]:
    """The port of a gRPC server that speaks for every service."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    streams = StreamServer(
        bulk={0: service.produce, 1: service.echo},
        control={8: service.commit, 11: service.hold, 22: service.hold},
    )
    streams.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def running(**settings: int) -> AsyncIterator[System]:
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
    )
    async with serving(service) as backend_port, asyncio.TaskGroup() as tasks:
        metrics = Metrics("frontdoor")
        means = Means(
            node_id=7,
            clock=SystemClock(),
            tasks=tasks,
            metrics=metrics,
            tracer=None,
            budget=MemoryBudget(chosen.memory_bytes),
            acked=AckedRevision(),
            connect=connect_streams(chosen, None),
            authorization=Authorization(None, metrics),
        )
        door = assemble(chosen, views, means)
        for role in (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR):
            live[role].set(replace(instance(role, 1), address=f"127.0.0.1:{backend_port}"))
        factory = partial(ClientConnection, door.gateway, "PLAINTEXT")
        listening = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, backlog=1024)
        sweep = tasks.create_task(door.gateway.sweep())
        try:
            yield System(door, service, listening.sockets[0].getsockname()[1])
        finally:
            listening.close()
            for connection in tuple(door.gateway.connections):
                connection.abort()
            await door.close()
            sweep.cancel()


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


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def pipeline_of_all_sizes() -> None:
    async with running() as system:
        reader, writer = await system.connect()
        sizes = [0, 1, 100, 70_000, 3 << 20, 17, 1 << 20, 65_536, 9 << 20, 5]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        writer.write(b"".join(produce_frame(n, records) for n, records in enumerate(sent)))
        for number in range(len(sizes)):
            correlation_id, body = await read_answer(reader)
            response = produce.decode_response(body[1:], 9)
            assert correlation_id == number
            assert response.responses[0].partition_responses[0].base_offset == number
        assert system.service.produced == sent
        await close(writer)


async def test_requests_of_all_sizes_arrive_whole_and_in_order() -> None:
    await pipeline_of_all_sizes()


def test_under_uvloop_they_do_too() -> None:
    uvloop.run(pipeline_of_all_sizes())


async def test_a_client_that_leaves_cancels_its_requests_at_the_service() -> None:
    async with running() as system:
        _, writer = await system.connect()
        for number in range(3):
            writer.write(framed(22, 0, number, pack(">hi", -1, 0)))
        await until(lambda: len(system.service.held) == 3)
        await close(writer)
        await until(lambda: system.service.cancelled == 3)


async def test_a_long_wait_on_one_connection_holds_up_no_other() -> None:
    async with running() as system:
        _, waiting = await system.connect()
        waiting.write(framed(22, 0, 1, pack(">hi", -1, 0)))
        await until(lambda: bool(system.service.held))
        reader, writer = await system.connect()
        writer.write(API_VERSIONS_0)
        assert (await read_answer(reader))[0] == 9
        await close(writer)
        await close(waiting)


async def test_a_client_that_reads_nothing_stops_being_read_and_then_goes_on() -> None:
    async with running(frontdoor_unsent_bytes_max=1 << 20) as system:
        reader, writer = await system.connect()
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        one = framed(1, 4, 7, bytes(100_000))
        total = 400
        writing = asyncio.ensure_future(write_all(writer, one, total))
        stats = system.door.gateway.metrics.by_key[1]
        await until(lambda: stands_still(lambda: stats.requests.value))
        assert stats.requests.value < total
        for _ in range(total):
            assert (await read_answer(reader))[0] == 7
        await writing
        assert stats.requests.value == total
        await close(writer)


async def write_all(writer: asyncio.StreamWriter, data: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(data)
        await writer.drain()


SEEN: dict[int, int] = {}


def stands_still(read: Callable[[], int]) -> bool:
    """Whether the value is above zero and has not changed over the last hundred looks."""
    value = read()
    SEEN[value] = SEEN.get(value, 0) + 1
    return value > 0 and SEEN[value] > 100


async def test_a_thousand_idle_connections_cost_little_and_disturb_nobody() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2_300:
        if hard < 2_300:
            pytest.skip("too few file descriptors allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2_300, hard))
    async with running() as system:
        writers = [(await system.connect())[1] for _ in range(1_000)]
        await until(lambda: len(system.door.gateway.connections) == 1_000)
        reader, writer = await system.connect()
        writer.write(produce_frame(3, b"x"))
        assert (await read_answer(reader))[0] == 3
        assert system.door.gateway.metrics.connections.value == 1_001
        for each in (*writers, writer):
            each.close()
        await until(lambda: not system.door.gateway.connections)


async def test_pipelined_requests_are_answered_after_the_client_closed_its_half() -> None:
    async with running() as system:
        reader, writer = await system.connect()
        for number in range(20):
            writer.write(produce_frame(number, b"x" * 1000))
        writer.write_eof()
        assert [(await read_answer(reader))[0] for _ in range(20)] == list(range(20))
        assert await reader.read() == b""
        await close(writer)


async def test_acks_0_reaches_the_service_and_the_next_request_is_answered_first() -> None:
    async with running() as system:
        reader, writer = await system.connect()
        writer.write(produce_frame(1, b"quiet", acks=0) + API_VERSIONS_0)
        assert (await read_answer(reader))[0] == 9
        await until(lambda: system.service.produced == [b"quiet"])
        await close(writer)


def request_frame(key: int, version: int, correlation_id: int, message: Any) -> bytes:
    body = b"".join(map(bytes, module_of(key).encode_request(message, version)))
    whole = encode_request_header(key, version, correlation_id, "test") + body
    return pack(">i", len(whole)) + whole


async def test_commits_of_one_connection_reach_the_coordinator_in_their_order() -> None:
    """Large ones travel in pieces between which smaller ones could slip."""
    async with running(frontdoor_streams=3) as system:
        reader, writer = await system.connect()
        for number in range(40):
            size = 30_000 if number % 8 == 0 else 10
            partitions = [
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=number, committed_metadata="m" * size
                )
                for index in range(50)
            ]
            topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=partitions)
            message = offset_commit.OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=number, topics=[topic]
            )
            writer.write(request_frame(8, 9, number, message))
        assert [(await read_answer(reader))[0] for _ in range(40)] == list(range(40))
        assert [one.generation_id_or_member_epoch for one in system.service.commits] == list(range(40))
        await close(writer)


@pytest.mark.parametrize("way", ["half", "whole", "reset"])
async def test_a_client_that_leaves_takes_its_join_back_at_the_coordinator(way: str) -> None:
    async with running() as system:
        _, writer = await system.connect()
        joining = join_group.JoinGroupRequest(group_id="g", rebalance_timeout_ms=300_000)
        writer.write(request_frame(11, 9, 1, joining))
        await until(lambda: len(system.service.held) == 1)
        assert system.service.held[0].meta.age_budget_ms > 290_000
        if way == "half":
            writer.write_eof()
        elif way == "whole":
            writer.close()
        else:
            writer.transport.abort()
        await until(lambda: system.service.cancelled == 1)
        await close(writer)

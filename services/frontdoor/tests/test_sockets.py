"""Real sockets in front, real streams behind: what only the two of them together can show."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
import uvloop
from door_harness import until
from door_sockets import API_VERSIONS_0, close, framed, produce_frame, read_answer, running
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import join_group, module_of, offset_commit, produce


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
    async with running() as system:
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

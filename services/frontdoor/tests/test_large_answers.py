"""Answers that may be large: one at a time for a connection, and kept only while there is room for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from door_fakes import FakeStream
from door_harness import Cluster, FakeClient, settled
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.memory import FRESH_MS
from kafscale.frontdoor.refusals import REQUEST_BYTES_MAX
from kafscale.wire.schema import describe_groups, metadata, offset_for_leader_epoch

MIB = 1 << 20
ROOM = 8
"""MiB for answers: half of a process's memory."""
LEADER_NOT_AVAILABLE, NOT_COORDINATOR = 5, 16
METADATA, DESCRIBE_GROUPS, EPOCHS = 3, 15, 23


@pytest_asyncio.fixture
async def small() -> AsyncIterator[Cluster]:
    async with Cluster.running(memory_bytes=2 * ROOM * MIB) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        yield cluster


def admin(cluster: Cluster) -> FakeStream:
    return cluster.stream(Backend.ADMIN, 1, "control")


def ask_metadata(client: FakeClient, *names: str) -> None:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names or ("t",)]
    request = metadata.MetadataRequest(topics=topics)
    client.ask(METADATA, 9, b"".join(map(bytes, metadata.encode_request(request, 9))))


def held_bytes(cluster: Cluster) -> int:
    """Of answers: what requests hold here is a few bytes."""
    return cluster.door.gateway._answers.used_bytes


def topic_errors(client: FakeClient) -> list[int]:
    (answer,) = client.answers
    return [topic.error_code for topic in metadata.decode_response(answer.body, 9).topics]


async def test_a_connection_has_one_large_answer_at_a_time(small: Cluster) -> None:
    client = small.client()
    body = b"".join(map(bytes, metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    client.transport.takes = False
    client.feed(b"".join(client.frame(METADATA, 9, body) for _ in range(5)))
    for asked in range(1, 6):
        assert len(admin(small).sent) == asked
        admin(small).sent[-1].reply(bytes(2 * MIB))
        client.connection.pause_writing()
        await settled()
        assert len(admin(small).sent) == asked, "it has not been taken"
        client.transport.buffered = 0
        client.connection.resume_writing()
        await settled()
    assert len(client.answers) == 5


async def test_parts_that_have_come_count_until_the_answer_is_the_clients(small: Cluster) -> None:
    client = small.client()
    ask_metadata(client)
    (sent,) = admin(small).sent
    assert all(sent.arrive(MIB) for _ in range(5))
    assert held_bytes(small) == 5 * MIB
    sent.reply(bytes(5 * MIB))
    await settled()
    assert len(client.answers[0].body) == 5 * MIB
    assert held_bytes(small) == 0


async def test_an_answer_without_room_is_thrown_away_and_its_client_asks_again(small: Cluster) -> None:
    first, second = small.client(), small.client()
    ask_metadata(first)
    ask_metadata(second)
    one, other = admin(small).sent
    assert all(one.arrive(MIB) for _ in range(ROOM))
    assert not other.arrive(MIB)
    await settled()
    assert topic_errors(second) == [LEADER_NOT_AVAILABLE]
    assert held_bytes(small) == ROOM * MIB
    assert small.door.gateway.metrics.dropped_answers.value == 1
    one.reply(b"whole")
    await settled()
    assert len(first.answers) == 1
    assert not first.hung_up
    assert not second.hung_up


async def test_a_group_call_whose_answer_found_no_room_may_have_been_done(small: Cluster) -> None:
    small.slots.set("g", "1/a")
    small.serve(Backend.COORDINATOR, 1)
    client = small.client()
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    client.ask(DESCRIBE_GROUPS, 5, b"".join(map(bytes, describe_groups.encode_request(request, 5))))
    (sent,) = small.stream(Backend.COORDINATOR, 1, "control").sent
    assert not sent.arrive((ROOM + 1) * MIB)
    await settled()
    (group,) = describe_groups.decode_response(client.answers[0].body, 5).groups
    assert group.error_code == NOT_COORDINATOR


async def test_who_reads_nothing_makes_room_for_who_asks(small: Cluster) -> None:
    idle, client = small.client(), small.client()
    idle.transport.takes = False
    ask_metadata(idle)
    admin(small).sent[0].reply(bytes(5 * MIB))
    await settled()
    ask_metadata(client)
    sent = admin(small).sent[1]
    assert sent.arrive(2 * MIB)
    idle.connection.caller.unsent.moved_ms -= 2 * FRESH_MS
    assert sent.arrive(2 * MIB)
    assert idle.hung_up
    assert not client.hung_up
    assert held_bytes(small) == 4 * MIB


async def test_what_a_client_that_left_was_sent_is_given_back(small: Cluster) -> None:
    client = small.client()
    ask_metadata(client)
    (sent,) = admin(small).sent
    admits = sent.admits
    assert admits is not None
    assert admits(MIB)
    client.leave()
    assert held_bytes(small) == 0
    assert not admits(MIB)
    assert held_bytes(small) == 0


@pytest.mark.parametrize("size", [REQUEST_BYTES_MAX // 2, 2 * REQUEST_BYTES_MAX])
async def test_a_refusal_is_written_for_requests_of_a_bounded_size(small: Cluster, size: int) -> None:
    """It names what the request names; a larger request is not read for it, and its connection is closed."""
    client = small.client()
    name = "n" * (16 << 10)
    ask_metadata(client, *[f"{name}{number}" for number in range(size // len(name))])
    admin(small).sent[0].lose(sent=True)
    small.serve(Backend.ADMIN)
    client.connection.exchanges[next(iter(client.connection.exchanges))].call.expire()  # type: ignore[union-attr]
    await settled()
    assert client.hung_up is (size > REQUEST_BYTES_MAX)
    assert len(client.answers) == (size < REQUEST_BYTES_MAX)


async def test_a_refusal_that_finds_no_room_closes_its_connection(small: Cluster) -> None:
    small.serve(Backend.FETCH, 1)
    full, client = small.client(), small.client()
    ask_metadata(full)
    assert admin(small).sent[0].arrive(ROOM * MIB)
    entries = [
        offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(partition=n) for n in range(60_000)
    ]
    topic = offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic="t", partitions=entries)
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
    body = b"".join(map(bytes, offset_for_leader_epoch.encode_request(request, 2)))
    assert len(body) < REQUEST_BYTES_MAX
    client.ask(EPOCHS, 2, body)
    client.connection.exchanges[next(iter(client.connection.exchanges))].call.expire()  # type: ignore[union-attr]
    await settled()
    assert client.hung_up
    assert held_bytes(small) == ROOM * MIB

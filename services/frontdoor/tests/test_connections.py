"""Connections: bounds, back-pressure, deadlines, and how they end."""

import asyncio
from collections.abc import Sequence
from struct import pack

import pytest
from door_harness import Cluster, FakeClient, settled, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.connection import FrameTimeouts
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema import (
    describe_cluster,
    init_producer_id,
    metadata,
    produce,
)

CONTROL = "control"


def joined(buffers: object) -> bytes:
    return b"".join(map(bytes, buffers))  # type: ignore[call-overload]


async def test_a_pipeline_of_many_requests_is_answered_in_order_and_in_few_writes(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(b"".join(client.frame(18, 0, b"") for _ in range(1000)))
    await until(lambda: len(client.answers) == 1000)
    assert [answer.correlation_id for answer in client.answers] == list(range(1, 1001))
    assert client.transport.writes <= 5
    assert client.transport.reading


async def test_past_its_bound_of_requests_a_connection_is_not_read() -> None:
    async with Cluster.running(frontdoor_requests_max=3) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        client = cluster.client()
        body = joined(describe_cluster.encode_request(describe_cluster.DescribeClusterRequest(), 1))
        client.feed(b"".join(client.frame(60, 1, body) for _ in range(5)))
        stream = cluster.stream(Backend.ADMIN, 1, CONTROL)
        assert len(stream.sent) == 3
        assert not client.transport.reading
        stream.sent[1].reply(b"second")
        await settled()
        assert len(stream.sent) == 3, "an answer that cannot be sent yet makes no room"
        stream.sent[0].reply(b"first")
        await settled()
        assert len(stream.sent) == 5
        assert not client.transport.reading
        for one in stream.sent[2:]:
            one.reply(b"more")
        await settled()
        assert client.transport.reading
        assert len(client.answers) == 5


async def test_while_requests_fill_the_memory_small_ones_go_on_and_all_do_after() -> None:
    async with Cluster.running(memory_bytes=16 << 20) as cluster:
        topic = cluster.topics.add("t", 1, 1)
        cluster.serve(Backend.PRODUCE, 1)
        cluster.own(topic, 0, 1)
        full, large, small = cluster.client(), cluster.client(), cluster.client()
        full.produce(("t", 0, bytes(7 << 20)))
        large.produce(("t", 0, bytes(100 << 10)))
        small.produce(("t", 0, b"small"))
        assert [one.transport.reading for one in (full, large, small)] == [False, False, True]
        cluster.producer(1).sent[0].append()
        await settled()
        assert [one.transport.reading for one in (full, large, small)] == [True, True, True]
        for sent in cluster.producer(1).sent[1:]:
            sent.append()
        await settled()
        await until(lambda: cluster.door.gateway._budget.used_bytes == 0)


async def test_half_frames_of_many_connections_leave_a_bystander_alone() -> None:
    async with Cluster.running(memory_bytes=16 << 20) as cluster:
        halves = [cluster.client() for _ in range(300)]
        for half in halves:
            half.feed(pack(">i", 90 << 20) + bytes(65_596))
        bystander = cluster.client()
        for _ in range(3):
            bystander.feed(bystander.frame(18, 0, b""))
            await settled()
        assert len(bystander.answers) == 3
        assert cluster.door.gateway._budget.used_bytes <= 16 << 20
        assert sum(half.hung_up for half in halves) >= 200, "memory is for those that may still get done"


async def test_large_requests_that_do_not_fit_together_are_taken_one_after_the_other() -> None:
    """Honest and slow: each pauses in the middle, all of them together are six times what there is."""
    async with Cluster.running(memory_bytes=16 << 20, socket_request_max_bytes=8 << 20) as cluster:
        topic = cluster.topics.add("t", 1, 1)
        cluster.serve(Backend.PRODUCE, 1)
        cluster.own(topic, 0, 1)
        clients = [cluster.client() for _ in range(6)]
        message = joined(produce_of(bytes(7 << 20)))
        left = {client: memoryview(client.frame(0, 9, message)) for client in clients}
        bystander = cluster.client()
        answered = 0
        while left:
            for client in [one for one in clients if one in left and one.transport.reading]:
                client.feed(bytes(left[client][: 256 << 10]))
                left[client] = left[client][256 << 10 :]
                if not left[client]:
                    del left[client]
            bystander.feed(bystander.frame(18, 0, b""))
            for sent in cluster.producer(1).sent[answered:]:
                sent.append()
                answered += 1
            await settled()
            assert cluster.door.gateway._budget.used_bytes <= 24 << 20
        assert all(len(client.answers) == 1 for client in clients)
        assert len(bystander.answers) == bystander.numbers


def produce_of(records: bytes) -> Sequence[Buffer]:
    entry = produce.ProduceRequestPartition(index=0, records=records)
    topic = produce.ProduceRequestTopic(name="t", partition_data=[entry])
    return produce.encode_request(produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9)


async def test_who_sends_to_an_instance_that_takes_nothing_is_not_read_until_it_does(
    cluster: Cluster,
) -> None:
    topic = cluster.topics.add("t", 1, 2)
    cluster.serve(Backend.PRODUCE, 1, 2)
    cluster.own(topic, 0, 1)
    cluster.own(topic, 1, 2)
    stuck, other = cluster.client(), cluster.client()
    cluster.producer(1).full = True
    stuck.produce(("t", 0, b"a"))
    other.produce(("t", 1, b"b"))
    assert (stuck.transport.reading, other.transport.reading) == (False, True)
    cluster.producer(1).full = False
    cluster.producer(1).room.set()
    await settled()
    assert stuck.transport.reading


async def test_a_client_that_does_not_take_its_answers_is_not_read(cluster: Cluster) -> None:
    client = cluster.client()
    client.connection.pause_writing()
    assert not client.transport.reading
    client.feed(client.frame(18, 0, b""))
    await settled()
    assert client.answers == []
    client.connection.resume_writing()
    await settled()
    assert len(client.answers) == 1
    assert client.transport.reading


async def test_what_a_half_closed_client_has_asked_is_still_answered(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    assert client.connection.eof_received() is True
    assert not client.hung_up
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"late")
    await settled()
    assert client.answers[0].body == b"late"
    assert client.hung_up


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", pack(">i", -1)])
async def test_junk_ends_its_connection_alone(cluster: Cluster, junk: bytes) -> None:
    bad, good = cluster.client(), cluster.client()
    good.feed(good.frame(18, 0, b""))
    bad.feed(junk)
    await settled()
    assert bad.hung_up
    assert not good.hung_up
    assert len(good.answers) == 1


async def test_answers_that_were_ready_are_sent_before_junk_ends_the_connection(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(client.frame(18, 0, b"") + pack(">i", -1))
    await settled()
    assert client.hung_up
    assert len(client.answers) == 1


async def test_too_many_connections_are_turned_away_at_the_door() -> None:
    async with Cluster.running(max_connections=2) as cluster:
        first, second = cluster.client(), cluster.client()
        for one in (first, second):
            one.feed(one.frame(18, 0, b""))
        assert cluster.client().hung_up
        assert [client.hung_up for client in (first, second)] == [False, False]
        await settled()
        first.leave()
        assert not cluster.client().hung_up


async def test_a_connection_without_a_request_makes_room_for_a_new_one() -> None:
    async with Cluster.running(max_connections=10, max_connections_per_ip=2) as cluster:
        asked, silent = cluster.client(), cluster.client()
        asked.feed(asked.frame(18, 0, b""))
        new = cluster.client()
        assert [client.hung_up for client in (asked, silent, new)] == [False, True, False]
        await settled()
        assert len(cluster.door.gateway.connections) == 2


async def test_a_connection_that_asks_nothing_is_closed_and_one_that_asked_once_is_not() -> None:
    async with Cluster.running(frontdoor_first_request_ms=1_000) as cluster:
        silent, half, asked = cluster.client(), cluster.client(), cluster.client()
        asked.feed(asked.frame(18, 0, b""))
        half.feed(half.frame(18, 0, b"")[:9])
        await until(lambda: silent.hung_up and half.hung_up)
        assert not asked.hung_up


async def test_a_client_that_takes_no_answers_is_closed_and_its_memory_is_free(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.memory.STUCK_MS", 300)
    cluster.serve(Backend.FETCH, 1)
    deaf, slow = cluster.client(), cluster.client()
    for client in (deaf, slow):
        client.transport.takes = False
        client.fetch(("t", 0))
    for sent in cluster.fetcher(1).sent:
        sent.give(bytes(2 << 20))
    await until(lambda: cluster.door.gateway._budget.used_bytes > 4 << 20)

    def takes_a_little() -> bool:
        slow.transport.buffered -= 1
        return deaf.hung_up

    await until(takes_a_little)
    assert not slow.hung_up
    await until(lambda: cluster.door.gateway._budget.used_bytes < 3 << 20)


async def test_a_request_without_an_answer_in_time_is_refused_and_cancelled() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        cluster.serve(Backend.COORDINATOR, 1)
        client = cluster.client()
        request = init_producer_id.InitProducerIdRequest(transactional_id=None)
        client.ask(22, 4, joined(init_producer_id.encode_request(request, 4)))
        await until(lambda: bool(client.answers))
        assert init_producer_id.decode_response(client.answers[0].body, 4).error_code == 14
        assert cluster.stream(Backend.COORDINATOR, 1, CONTROL).sent[0].cancelled


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with Cluster.running(connections_max_idle_ms=1_000) as cluster:
        cluster.serve(Backend.FETCH, 1)
        idle, busy = cluster.client(), cluster.client()
        busy.fetch(("t", 0), max_wait_ms=60_000)
        await until(lambda: idle.hung_up)
        assert not busy.hung_up


async def test_half_a_request_that_stands_still_ends_the_connection(
    cluster: Cluster,
) -> None:
    cluster.door.gateway.frame_timeouts = FrameTimeouts(quiet_ms_max=50)
    slow, whole = cluster.client(), cluster.client()
    slow.feed(slow.frame(18, 0, b"")[:7])
    whole.feed(whole.frame(18, 0, b""))
    await until(lambda: slow.hung_up)
    assert not whole.hung_up


async def test_half_a_request_that_came_behind_whole_ones_has_its_time_as_well() -> None:
    async with Cluster.running(frontdoor_requests_max=1) as cluster:
        cluster.door.gateway.frame_timeouts = FrameTimeouts(quiet_ms_max=50)
        cluster.serve(Backend.ADMIN, 1)
        client = cluster.client()
        body = joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9))
        client.feed(client.frame(3, 9, body) + client.frame(18, 0, b"")[:7])
        cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"first")
        await until(lambda: client.hung_up)
        assert len(client.answers) == 1


async def test_a_request_that_comes_byte_by_byte_is_answered(cluster: Cluster) -> None:
    client = cluster.client()
    for byte in client.frame(18, 0, b""):
        client.feed(bytes([byte]))
    await settled()
    assert len(client.answers) == 1


async def test_a_drain_answers_what_is_open_and_turns_newcomers_away(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    idle, busy = cluster.client(), cluster.client()
    busy.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    drain = asyncio.ensure_future(cluster.door.gateway.drain(5_000))
    await settled()
    assert (idle.hung_up, busy.hung_up) == (True, False)
    assert cluster.client().hung_up
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"bye")
    await drain
    assert busy.answers[0].body == b"bye"


async def test_a_drain_that_takes_too_long_cuts_off(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    await cluster.door.gateway.drain(20)
    await settled()
    assert client.hung_up
    assert cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].cancelled


async def test_an_instance_that_is_gone_fails_what_it_still_has(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 1)
    cluster.serve(Backend.PRODUCE, 1)
    cluster.own(topic, 0, 1)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.serve(Backend.PRODUCE, 2)
    await until(lambda: client.hung_up)
    assert client.answers == []
    assert cluster.producer(1).closed


async def test_requests_errors_and_bytes_are_counted_by_api(cluster: Cluster) -> None:
    client: FakeClient = cluster.client()
    client.ask(18, 99, b"")
    client.ask(18, 0)
    await settled()
    stats = cluster.door.gateway.metrics.by_key[18]
    assert stats.requests.value == 2
    assert stats.in_bytes.value == 2 * (len(client.frame(18, 0, b"")) - 4) + 1, "the first has a tag count"
    assert stats.out_bytes.value == sum(len(answer.body) for answer in [*client.answers])
    errors = dict(cluster.door.gateway.metrics.errors.rows())
    assert errors["ApiVersions", "UNSUPPORTED_VERSION"].value == 1


async def test_the_same_complaint_is_logged_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        cluster.client().feed(b"GET / HTTP/1.1\r\n\r\n")
    await settled()
    assert (capsys.readouterr().out).count("not a Kafka request") == 1

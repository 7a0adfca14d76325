"""Clients over their quota at a front door: answered first, then not read for their throttle time (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from door_harness import Cluster, FakeClient, settled, until
from kafscale.access.quota import Default, QuotaEntity, QuotaKey
from kafscale.frontdoor.api import Backend
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import api_versions, create_topics, fetch, produce

CLIENT = QuotaEntity(client_id="test")
"""That of the harness's clients."""
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
CONTROL = "control"


@asynccontextmanager
async def door(**settings: int) -> AsyncIterator[Cluster]:
    """With one topic, and one instance of each service."""
    async with Cluster.running(**settings) as cluster:
        topic = cluster.topics.add("t", 1, 2)
        for role in (Backend.PRODUCE, Backend.FETCH, Backend.ADMIN):
            cluster.serve(role, 1)
        cluster.own(topic, 0, 1)
        yield cluster


def produce_frame(client: FakeClient, records: bytes) -> bytes:
    part = produce.ProduceRequestPartition(index=0, records=records)
    topic = produce.ProduceRequestTopic(name="t", partition_data=[part])
    message = produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    return client.frame(0, 9, b"".join(map(bytes, produce.encode_request(message, 9))))


def throttle_of(client: FakeClient, number: int, codec: Any) -> int:
    answer = client.answers[number]
    version = client.versions[answer.correlation_id][1]
    return int(codec.decode_response(answer.body, version).throttle_time_ms)


async def test_a_producer_over_its_quota_is_answered_at_once_and_then_not_read() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        client = cluster.client()
        client.produce(("t", 0, bytes(1_100_000)))
        assert not client.transport.reading
        cluster.producer(1).sent[0].append()
        await settled()
        assert client.produced() == [("t", 0, 0, 0)]
        assert 0 < throttle_of(client, 0, produce) <= 1_001
        assert not client.transport.reading, "its answer is here, and it waits"
        await until(lambda: client.transport.reading)
        client.produce(("t", 0, b"next"))
        assert len(cluster.producer(1).sent) == 2


async def test_what_was_read_ahead_is_not_sent_on_before_the_time_is_over() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        client, bystander = cluster.client(), cluster.client()
        client.produce(("t", 0, bytes(1_100_000)))
        client.feed(client.frame(18, 0, b""))
        await settled()
        assert len(client.answers) == 0
        bystander.feed(bystander.frame(18, 0, b""))
        await settled()
        assert len(bystander.answers) == 1
        cluster.producer(1).sent[0].append()
        await until(lambda: len(client.answers) == 2)
        assert client.transport.reading


async def test_the_quota_is_of_the_client_not_of_the_connection() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        first, second = cluster.client(), cluster.client()
        first.produce(("t", 0, bytes(990_000)))
        assert first.transport.reading
        second.produce(("t", 0, bytes(60_000)))
        assert not second.transport.reading
        assert first.transport.reading


async def test_acks_0_is_throttled_without_an_answer() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        client = cluster.client()
        client.produce(("t", 0, bytes(1_100_000)), acks=0)
        assert not client.transport.reading
        cluster.producer(1).sent[0].append()
        await until(lambda: client.transport.reading)
        assert client.answers == []


async def test_a_fetch_is_limited_sent_and_counted_and_the_next_one_is_empty() -> None:
    async with door(quota_window_num=2) as cluster:
        cluster.quotas.put(CLIENT, CONSUMER, 100_000)
        client, other = cluster.client(), cluster.client()
        client.fetch(("t", 0))
        (sent,) = cluster.fetcher(1).sent
        assert sent.fetched.max_bytes == 100_000
        sent.give(bytes(200_000))
        await settled()
        assert len(client.fetched()[0][3]) == 200_000
        assert 0 < throttle_of(client, 0, fetch) <= 1_010
        assert not client.transport.reading
        other.fetch(("t", 0))
        await settled()
        assert other.fetched() == []
        assert throttle_of(other, 0, fetch) > 0
        assert len(cluster.fetcher(1).sent) == 1, "no service was asked"
        assert not other.transport.reading
        async with asyncio.timeout(10):
            while len(cluster.fetcher(1).sent) == 1:  # the window is over
                await until(lambda: other.transport.reading)
                other.fetch(("t", 0))


async def test_the_work_for_requests_is_limited() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, QuotaKey.REQUEST_PERCENTAGE, 0.000_001)
        client = cluster.client()
        client.ask(18, 3, *api_versions.encode_request(api_versions.ApiVersionsRequest(), 3))
        await settled()
        assert throttle_of(client, 0, api_versions) == 1_000
        assert not client.transport.reading


async def test_the_throttle_time_of_admin_mutes_the_client() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
        client = cluster.client()
        client.ask(19, 6, *create_topics.encode_request(create_topics.CreateTopicsRequest(), 6))
        result = create_topics.CreateTopicsResponseTopicResult(
            name="t", error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, configs=None
        )
        answer = create_topics.CreateTopicsResponse(throttle_time_ms=900, topics=[result])
        cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(*create_topics.encode_response(answer, 6))
        await settled()
        assert throttle_of(client, 0, create_topics) == 900
        assert not client.transport.reading
        await until(lambda: client.transport.reading)


async def test_a_client_that_sends_no_more_is_not_muted() -> None:
    """What it has sent is taken, as without quotas, and then the connection ends."""
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        client = cluster.client()
        client.produce(("t", 0, bytes(100_000)), acks=0)
        client.produce(("t", 0, b"last"), acks=0)
        assert len(cluster.producer(1).sent) == 1
        client.connection.eof_received()
        assert len(cluster.producer(1).sent) == 2
        for sent in cluster.producer(1).sent:
            sent.append()
        await until(lambda: client.hung_up)


async def test_what_waits_for_a_throttle_time_waits_also_if_its_client_sends_no_more() -> None:
    """As on a broker of Kafka, which does not read the end of a muted connection before the time is over."""
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        first, second = cluster.client(), cluster.client()
        first.produce(("t", 0, bytes(1_250_000)))
        second.produce(("t", 0, b"held"), acks=0)
        second.connection.eof_received()
        assert len(cluster.producer(1).sent) == 1
        await until(lambda: len(cluster.producer(1).sent) == 2)
        cluster.producer(1).sent[1].append()
        await until(lambda: second.hung_up)


async def test_a_drain_does_not_wait_for_the_end_of_a_throttle_time() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        client = cluster.client()
        client.produce(("t", 0, bytes(100_000)))
        client.feed(client.frame(18, 0, b""))
        cluster.producer(1).sent[0].append()
        client.connection.drain()
        await until(lambda: client.hung_up)
        assert len(client.answers) == 2


async def test_a_drain_sends_what_waits_for_a_throttle_time() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        first, second = cluster.client(), cluster.client()
        first.produce(("t", 0, bytes(100_000)))
        second.produce(("t", 0, b"held"))
        assert len(cluster.producer(1).sent) == 1
        draining = asyncio.create_task(cluster.door.gateway.drain(5_000))
        await until(lambda: len(cluster.producer(1).sent) == 2)
        for sent in cluster.producer(1).sent:
            sent.append()
        await until(lambda: second.hung_up and first.hung_up)
        first.leave()
        second.leave()
        await draining


# ---- a connection for each request


async def test_a_client_with_a_connection_for_each_request_is_throttled_too() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        first, second = cluster.client(), cluster.client()
        first.produce(("t", 0, bytes(1_100_000)))
        cluster.producer(1).sent[0].append()
        second.produce(("t", 0, b"held"))
        await settled()
        assert len(cluster.producer(1).sent) == 1
        assert not second.transport.reading
        await until(lambda: len(cluster.producer(1).sent) == 2)
        cluster.producer(1).sent[1].append()
        await settled()
        assert second.produced() == [("t", 0, 0, 0)]


async def test_a_connection_waits_for_its_own_throttle_time_and_not_for_that_of_others() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        kept, other = cluster.client(), cluster.client()
        kept.produce(("t", 0, b"within the quota"))
        other.produce(("t", 0, bytes(1_500_000)))
        kept.produce(("t", 0, b"again"))
        assert len(cluster.producer(1).sent) == 3
        assert not kept.transport.reading


async def test_nobody_waits_for_the_throttle_time_of_another_user() -> None:
    async with door() as cluster:
        cluster.quotas.put(QuotaEntity(user=Default.DEFAULT), PRODUCER, 1_000)
        cluster.client("User:alice").produce(("t", 0, bytes(100_000)))
        cluster.client("User:bob").produce(("t", 0, b"records"))
        assert len(cluster.producer(1).sent) == 2


async def test_no_request_passes_one_that_waits_on_its_connection() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        cluster.client().produce(("t", 0, bytes(1_100_000)))
        client = cluster.client()
        client.feed(b"".join(produce_frame(client, records) for records in (b"one", b"two")))
        assert len(cluster.producer(1).sent) == 1
        await until(lambda: len(cluster.producer(1).sent) == 3)
        assert [sent.produced[0][2] for sent in cluster.producer(1).sent[1:]] == [b"one", b"two"]


async def test_a_client_that_leaves_takes_what_waits_with_it() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 100_000)
        cluster.client().produce(("t", 0, bytes(1_050_000)))
        gone, witness = cluster.client(), cluster.client()
        gone.feed(b"".join(produce_frame(gone, records) for records in (b"gone", b"gone with it")))
        witness.produce(("t", 0, b"held"))
        cluster.quotas.put(CLIENT, PRODUCER, None)
        gone.leave()
        assert len(cluster.producer(1).sent) == 1
        await until(lambda: len(cluster.producer(1).sent) == 2)
        await settled()
        assert [sent.produced[0][2] for sent in cluster.producer(1).sent[1:]] == [b"held"]
        assert cluster.door.gateway.metering._held_bytes == 0


async def test_requests_that_wait_take_a_small_share_of_the_memory() -> None:
    async with door(memory_bytes=64 << 20) as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        cluster.client().produce(("t", 0, bytes(100_000)))
        first, second, third = (cluster.client() for _ in range(3))
        first.produce(("t", 0, bytes(3 << 20)))
        second.produce(("t", 0, bytes(3 << 20)))
        assert (first.hung_up, second.hung_up) == (False, True)
        first.leave()
        third.produce(("t", 0, bytes(8 << 20)))
        assert not third.hung_up, "one may have any size"
        assert len(cluster.producer(1).sent) == 1


async def test_a_quota_that_is_removed_holds_nobody() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        cluster.client().produce(("t", 0, bytes(100_000)))
        cluster.quotas.put(CLIENT, PRODUCER, None)
        cluster.client().produce(("t", 0, b"records"))
        assert len(cluster.producer(1).sent) == 2


async def test_changes_of_topics_on_new_connections_are_throttled_too() -> None:
    """Old versions know no error for it: what they ask is done, and the bucket goes below zero."""
    async with door() as cluster:
        cluster.quotas.put(CLIENT, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
        control = cluster.stream(Backend.ADMIN, 1, CONTROL)
        body = b"".join(map(bytes, create_topics.encode_request(create_topics.CreateTopicsRequest(), 5)))
        first, second = cluster.client(), cluster.client()
        first.ask(19, 5, body)
        answer = create_topics.CreateTopicsResponse(throttle_time_ms=900)
        control.sent[0].reply(*create_topics.encode_response(answer, 5))
        await settled()
        second.ask(19, 5, body)
        await settled()
        assert len(control.sent) == 1
        await until(lambda: len(control.sent) == 2)


async def test_requests_on_new_connections_wait_for_a_request_percentage_too() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, QuotaKey.REQUEST_PERCENTAGE, 1e-6)
        first, second = cluster.client(), cluster.client()
        first.feed(first.frame(18, 0, b""))
        second.feed(second.frame(18, 0, b""))
        await settled()
        assert (len(first.answers), len(second.answers)) == (1, 0)
        await until(lambda: len(second.answers) == 1)


async def test_a_muted_connection_is_not_idle() -> None:
    async with door(connections_max_idle_ms=1_000) as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 10_000)
        client, silent = cluster.client(), cluster.client()
        silent.feed(silent.frame(18, 0, b""))
        client.produce(("t", 0, bytes(120_000)))
        cluster.producer(1).sent[0].append()
        await until(lambda: silent.hung_up)
        assert not client.hung_up
        await until(lambda: client.transport.reading)
        assert not client.hung_up, "its idle time begins when it may send again"


async def test_a_connection_that_is_lost_leaves_no_timer() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        client = cluster.client()
        client.produce(("t", 0, bytes(100_000)))
        assert client.connection._mute is not None
        client.leave()
        assert client.connection._mute is None


async def test_without_a_quota_for_clients_nothing_is_measured() -> None:
    async with door() as cluster:
        cluster.quotas.put(QuotaEntity(ip="127.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE, 1)
        client = cluster.client()
        client.produce(("t", 0, b"records"))
        (exchange,) = client.connection.exchanges.values()
        assert exchange.usage is None


async def test_throttle_times_are_counted_by_quota() -> None:
    async with door() as cluster:
        cluster.quotas.put(CLIENT, PRODUCER, 1_000)
        cluster.client().produce(("t", 0, bytes(20_000)))
        (found,) = [reading for reading in cluster.metrics.read() if reading.row.name == "throttle_seconds"]
        assert [labels for labels, _ in found.values] == [("producer_byte_rate",)]

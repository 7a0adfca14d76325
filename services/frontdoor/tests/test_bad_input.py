"""Whatever a client sends, it gets an answer or a closed connection, and nobody else notices."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest
from door_harness import Cluster, FakeClient, settled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.apis import SERVED
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import fetch, produce

KEYS = list(SERVED)


def served(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 4)
    for role in (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR, Backend.ADMIN):
        cluster.serve(role, 1, 2)
    for partition in range(4):
        cluster.own(topic, partition, 1 + partition % 2)


def mangled(data: st.DataObject, body: bytes) -> bytes:
    """A real body with some bytes changed, cut or added."""
    raw = bytearray(body)
    for _ in range(data.draw(st.integers(0, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    return bytes(raw[:cut]) + data.draw(st.sampled_from([b"", b"\0", b"\xff" * 5]))


def real_body(key: int, version: int) -> bytes:
    if key == 0:
        message = produce.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                produce.ProduceRequestTopic(
                    name="t",
                    topic_id=bytes(15) + b"\1",
                    partition_data=[
                        produce.ProduceRequestPartition(index=i, records=b"abc") for i in range(3)
                    ],
                )
            ],
        )
        return b"".join(map(bytes, produce.encode_request(message, version)))
    if key == 1:
        request = fetch.FetchRequest(
            topics=[
                fetch.FetchRequestTopic(
                    topic="t",
                    topic_id=bytes(15) + b"\1",
                    partitions=[fetch.FetchRequestPartition(partition=i) for i in range(3)],
                )
            ]
        )
        return b"".join(map(bytes, fetch.encode_request(request, version)))
    return bytes(8)


async def survives(requests: list[tuple[int, int, bytes]]) -> None:
    async with Cluster.running() as cluster:
        served(cluster)
        witness = cluster.client()
        for key, version, body in requests:
            client = cluster.client()
            whole = encode_request_header(key, version, 1, "fuzz") + body
            client.feed(pack(">i", len(whole)) + whole)
            await settled()
            client.leave()
        witness.ask(18, 0)
        await settled()
        assert len(witness.answers) == 1
        assert cluster.door.sender.held_parts == 0
        assert cluster.door.gateway._budget.used_bytes == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bodies_of_any_bytes_do_no_harm(data: st.DataObject) -> None:
    requests = []
    for _ in range(8):
        key = data.draw(st.sampled_from([0, 0, 1, 1, *KEYS]))
        version = data.draw(st.integers(*SERVED[key].versions))
        requests.append((key, version, mangled(data, real_body(key, version))))
    asyncio.run(survives(requests))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(chunks=st.lists(st.binary(max_size=64), max_size=8))
def test_streams_of_any_bytes_do_no_harm(chunks: list[bytes]) -> None:
    async def run() -> None:
        async with Cluster.running() as cluster:
            served(cluster)
            client = cluster.client()
            for chunk in chunks:
                client.feed(chunk)
            await settled()
            client.leave()
            assert cluster.door.gateway._budget.used_bytes == 0

    asyncio.run(run())


def one_partition(topic: str = "t", index: int = 0, records: bytes | None = b"x") -> produce.ProduceRequest:
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            produce.ProduceRequestTopic(
                name=topic, partition_data=[produce.ProduceRequestPartition(index=index, records=records)]
            )
        ],
    )


@pytest.mark.parametrize("name", ["", "..", "/", "%2e", "x" * 250, "a\0b", "t/0", "@kafscale"])
async def test_a_name_that_no_topic_has_is_unknown(cluster: Cluster, name: str) -> None:
    served(cluster)
    client = cluster.client()
    client.produce((name, 0, b"x"))
    await settled()
    assert client.produced() == [(name, 0, 3, -1)]


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1, -(2**31)])
async def test_a_partition_that_is_not_there_is_unknown(cluster: Cluster, index: int) -> None:
    served(cluster)
    client = cluster.client()
    client.produce(("t", index, b"x"))
    await settled()
    assert client.produced() == [("t", index, 3, -1)]


@pytest.mark.parametrize(
    ("acks", "timeout_ms", "least_ms", "most_ms"),
    [
        (-1, timeout_ms, 5_000, 6_000) for timeout_ms in (-1, 0, -(2**31))
    ]  # a second more than the service waits
    + [(-1, 30_000, 30_000, 31_000), (-1, 2**31 - 1, 299_000, 300_000)]
    + [(acks, timeout_ms, 299_000, 300_000) for acks in (0, 1) for timeout_ms in (-1, 0, 30_000)],
)
async def test_a_strange_timeout_is_brought_within_bounds(
    cluster: Cluster, acks: int, timeout_ms: int, least_ms: int, most_ms: int
) -> None:
    served(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"x"), acks=acks, timeout_ms=timeout_ms)
    assert least_ms < cluster.producer(1).sent[0].meta.age_budget_ms <= most_ms


async def test_null_records_are_for_the_owner_to_judge(cluster: Cluster) -> None:
    served(cluster)
    client = cluster.client()
    client.ask(0, 9, *produce.encode_request(one_partition(records=None), 9))
    assert len(cluster.producer(1).sent) == 1


@pytest.mark.parametrize("wait_ms", [-1, 0, 2**31 - 1])
async def test_a_strange_wait_has_a_deadline_all_the_same(cluster: Cluster, wait_ms: int) -> None:
    cluster.serve(Backend.FETCH, 1)
    client: FakeClient = cluster.client()
    client.fetch(("t", 0), max_wait_ms=wait_ms)
    assert 0 < cluster.fetcher(1).sent[0].meta.age_budget_ms <= 310_000

"""Topics are created, grown and deleted through three front doors and two admins.

Law: every confirmed topic exists afterwards at every front door. Of many clients that create one name, one succeeds.
A deleted topic leaves no object behind, and a recreated topic has another id, no old records and no old offsets. A
client can use every partition that it can see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics, metadata

from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.services import until

PER_CLIENT = 334  # an AdminClient and a bare connection at each of three front doors: 2,004 topics
PER_REQUEST = 50
SAME_NAMES = 10
CREATED_S = 240.0
SETTLED_S = 30.0
PARTITIONS = 3
FLUSHES = 40  # a segment each: enough for manifests and snapshots of producers
OFFSET_NONE = -1001

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("topics"),
        scale={"frontdoor": 3, "admin": 2},
        env={
            **SEGMENTS,
            "KAFSCALE_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        },
    )
    cluster.start()
    yield cluster
    cluster.kill()


def admin_of(door: str) -> AdminClient:
    """Keep it until its futures are done: a client that is dropped takes them with it."""
    return AdminClient({"bootstrap.servers": door})


# --- many at once ------------------------------------------------------------------------------


def created_by_admin_client(door: str, names: list[str]) -> dict[str, int]:
    """Name -> error, of a real client, which sends what it creates to the controller."""
    admin = admin_of(door)
    futures: dict[str, Any] = {}
    for start in range(0, len(names), PER_REQUEST):
        topics = [NewTopic(name, 1, 1) for name in names[start : start + PER_REQUEST]]
        futures |= admin.create_topics(topics, operation_timeout=CREATED_S, request_timeout=CREATED_S)
    return {name: _code(future) for name, future in futures.items()}


def _code(future: Any) -> int:
    try:
        future.result(CREATED_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def created_at(door: str, names: list[str]) -> dict[str, int]:
    """Name -> error, of requests that this very front door takes."""
    topics = [
        create_topics.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
        for name in names
    ]
    codes: dict[str, int] = {}
    with Raw.to(door) as raw:
        raw.socket.settimeout(CREATED_S)
        for start in range(0, len(topics), PER_REQUEST):
            some = create_topics.CreateTopicsRequest(topics=topics[start : start + PER_REQUEST])
            answer = ask(raw, create_topics, 7, some)
            codes |= {result.name: result.error_code for result in answer.topics}
    return codes


def topics_at(door: str) -> dict[str, bytes]:
    """Name -> id of every topic, as this front door answers it."""
    with Raw.to(door) as raw:
        answer = ask(raw, metadata, 12, metadata.MetadataRequest(topics=None))
    assert {topic.error_code for topic in answer.topics} <= {0}
    return {topic.name: topic.topic_id for topic in answer.topics}


def test_two_thousand_topics_that_are_created_at_once_are_all_there(cluster: Cluster) -> None:
    ways = [(create, door) for door in cluster.doors for create in (created_by_admin_client, created_at)]
    names = [
        [f"many-{way}-{n}" for n in range(PER_CLIENT)] + [f"same-{n}" for n in range(SAME_NAMES)]
        for way in range(len(ways))
    ]
    with ThreadPoolExecutor(len(ways)) as pool:
        codes = list(pool.map(lambda way, own: way[0](way[1], own), ways, names))
    own = {name: code for each in codes for name, code in each.items() if name.startswith("many")}
    assert len(own) == len(ways) * PER_CLIENT >= 2_000
    assert set(own.values()) == {0}
    for n in range(SAME_NAMES):
        outcomes = sorted(each[f"same-{n}"] for each in codes)
        assert outcomes == [0, *[ErrorCode.TOPIC_ALREADY_EXISTS] * (len(ways) - 1)]
    expected = set(own) | {f"same-{n}" for n in range(SAME_NAMES)}
    until("each front door shows them", lambda: all(set(topics_at(d)) >= expected for d in cluster.doors))
    first, second, third = (topics_at(door) for door in cluster.doors)
    assert first == second == third
    assert len(set(first.values())) == len(first)
    for door in cluster.doors:
        assert set(admin_of(door).list_topics(timeout=60).topics) == set(first)


# --- gone, and made again ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """The objects of a topic: segments and indexes, manifests, snapshots of producers."""

    segments: list[str]
    manifests: list[str]
    snapshots: list[str]


def kept(cluster: Cluster, name: str, topic_id: bytes) -> Kept:
    keys, known_by = cluster.inside().keys, TopicId(topic_id)

    async def look() -> Kept:
        store = cluster.open_store()
        try:
            found = [
                [info.key async for info in store.list(prefix)]
                for prefix in (
                    keys.topic_prefix(name),
                    keys.manifests_prefix(known_by),
                    keys.snapshots_prefix(known_by),
                )
            ]
        finally:
            await store.close()
        return Kept(*found)

    return asyncio.run(look())


def create(cluster: Cluster, name: str, partitions: int) -> None:
    admin = admin_of(cluster.bootstrap)
    (done,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    done.result(60)
    until("every front door knows it", lambda: all(name in topics_at(door) for door in cluster.doors))


def fill(cluster: Cluster, name: str, value: bytes, *, flushes: int) -> None:
    """One record in each partition per flush; all are acknowledged."""
    failed: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": cluster.doors[1], "enable.idempotence": True, "linger.ms": 0})
    for _ in range(flushes):
        for partition in range(PARTITIONS):
            producer.produce(name, value, partition=partition, on_delivery=delivered)
        assert producer.flush(60) == 0
    assert failed == []


def read(cluster: Cluster, name: str, count: int, **settings: Any) -> list[tuple[int, int, bytes | None]]:
    """Partition, offset and value of the first `count` records from where the group begins."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.doors[2],
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([name])
    found: list[tuple[int, int, bytes | None]] = []
    try:
        until("the records are read", lambda: _read_one(consumer, found) >= count, 60)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found)


def _read_one(consumer: Consumer, found: list[tuple[int, int, bytes | None]]) -> int:
    message = consumer.poll(1)
    while message is not None:
        assert message.error() is None, message.error()
        found.append((message.partition() or 0, message.offset() or 0, message.value()))
        message = consumer.poll(0)
    return len(found)


def committed(cluster: Cluster, name: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    wanted = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
    try:
        return [part.offset for part in consumer.committed(wanted, timeout=60)]
    finally:
        consumer.close()


def watermarks(cluster: Cluster, name: str) -> set[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody"})
    try:
        return {
            consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=60)
            for partition in range(PARTITIONS)
        }
    finally:
        consumer.close()


def test_a_deleted_topic_leaves_nothing_and_the_next_of_its_name_shares_nothing(cluster: Cluster) -> None:
    create(cluster, "again", PARTITIONS)
    old = topics_at(cluster.bootstrap)["again"]
    fill(cluster, "again", b"old", flushes=FLUSHES)
    assert len(read(cluster, "again", FLUSHES * PARTITIONS)) == FLUSHES * PARTITIONS
    assert committed(cluster, "again") == [FLUSHES] * PARTITIONS
    before = kept(cluster, "again", old)
    assert before.segments
    assert before.manifests
    assert before.snapshots

    admin = admin_of(cluster.bootstrap)
    (done,) = admin.delete_topics(["again"], operation_timeout=60).values()
    done.result(60)
    until("its objects are gone", lambda: kept(cluster, "again", old) == Kept([], [], []), SETTLED_S)
    assert not (cluster.data_dir / "objects" / "default" / "again").exists()

    create(cluster, "again", PARTITIONS)
    new = topics_at(cluster.bootstrap)["again"]
    assert new != old
    assert watermarks(cluster, "again") == {(0, 0)}
    assert committed(cluster, "again") == [OFFSET_NONE] * PARTITIONS
    fill(cluster, "again", b"new", flushes=1)
    assert read(cluster, "again", PARTITIONS) == [(n, 0, b"new") for n in range(PARTITIONS)]
    assert committed(cluster, "again") == [1] * PARTITIONS
    assert cluster.fsck().returncode == 0


# --- more partitions ---------------------------------------------------------------------------


def grow(cluster: Cluster, name: str, count: int, *, validate_only: bool = False) -> int:
    admin = admin_of(cluster.bootstrap)
    (done,) = admin.create_partitions([NewPartitions(name, count)], validate_only=validate_only).values()
    return _code(done)


def seen_by(client: Producer, name: str) -> int:
    return len(client.list_topics(name, timeout=30).topics[name].partitions)


def _sees(client: Producer, name: str, count: int) -> bool:
    return seen_by(client, name) == count


def test_a_partition_that_a_client_sees_takes_and_gives_records(cluster: Cluster) -> None:
    create(cluster, "grows", 1)
    producers = [Producer({"bootstrap.servers": door, "retries": 0}) for door in cluster.doors]
    assert [seen_by(producer, "grows") for producer in producers] == [1] * len(producers)
    assert grow(cluster, "grows", 4, validate_only=True) == 0
    assert [seen_by(producer, "grows") for producer in producers] == [1] * len(producers)
    assert grow(cluster, "grows", 4) == 0
    told: dict[int, list[object]] = {}
    for partition, producer in enumerate(producers, start=1):
        until("the client sees them", partial(_sees, producer, "grows", 4), SETTLED_S)

        def delivered(error: object, message: Message, about: int = partition) -> None:
            told.setdefault(about, []).append(error or message.offset())

        producer.produce("grows", b"%d" % partition, partition=partition, on_delivery=delivered)
        assert producer.flush(60) == 0
    assert told == {partition: [0] for partition in (1, 2, 3)}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition("grows", partition, 0) for partition in (1, 2, 3)])
    found: list[tuple[int, int, bytes | None]] = []
    try:
        until("the new partitions are read", lambda: _read_one(consumer, found) >= 3, SETTLED_S)
    finally:
        consumer.close()
    assert sorted(found) == [(partition, 0, b"%d" % partition) for partition in (1, 2, 3)]


@pytest.mark.parametrize("count", [3, 2])
def test_partitions_are_never_fewer(cluster: Cluster, count: int) -> None:
    if "shrinks" not in topics_at(cluster.bootstrap):
        create(cluster, "shrinks", 3)
    assert grow(cluster, "shrinks", count) == ErrorCode.INVALID_PARTITIONS

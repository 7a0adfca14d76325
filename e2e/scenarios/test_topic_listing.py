"""Which topics there are, as librdkafka asks: for all of them, and for those that fit a pattern.

Law: a client that asks for all topics sees each of them, and one that subscribes by pattern reads from each that fits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from e2e.harness.cluster import Cluster

ASK_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 60.0
TOPICS = ("orders.eu", "orders.us", "payments")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("listing"))
    cluster.start()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for topic in TOPICS:
        producer.produce(topic, topic.encode())
    assert producer.flush(ASK_TIMEOUT_S) == 0
    yield cluster
    cluster.stop()


def test_all_topics_are_listed(cluster: Cluster) -> None:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=ASK_TIMEOUT_S)
    assert set(found.topics) == set(TOPICS)
    assert all(len(topic.partitions) > 0 for topic in found.topics.values())


def test_a_pattern_subscribes_to_every_topic_that_fits(cluster: Cluster) -> None:
    settings = {"group.id": "by-pattern", "auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe(["^orders\\..*"])
    read: set[str | None] = set()
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while len(read) < 2:
            assert time.monotonic() < deadline, f"read from {read} only"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                read.add(message.topic())
    finally:
        consumer.close()
    assert read == {"orders.eu", "orders.us"}

"""Topics that Metadata creates for clients: kcat, librdkafka and kafka-python.

Law: as in Kafka, the answer that creates a topic says that it does not exist yet, and the client succeeds after
retries: its records are acknowledged and read back, whether the producer or the consumer is first. If a client names
dozens of topics, all exist in the end, although one request creates only a few.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import metadata

from e2e.harness.clients import require
from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.services import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    from kafka import KafkaConsumer, KafkaProducer

ANSWER_S = 60.0
DOZENS = 35

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("by-asking"))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


def read_one(cluster: Cluster, topic: str) -> bytes | None:
    settings = {"group.id": f"of-{topic}", "auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    deadline = time.monotonic() + ANSWER_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return message.value()
    finally:
        consumer.close()
    return None


def test_the_answer_that_creates_says_unknown_and_the_next_has_the_partitions(cluster: Cluster) -> None:
    with Raw.to(cluster.bootstrap) as raw:
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="asked-for")])
        (first,) = ask(raw, metadata, 12, request).topics
        (second,) = ask(raw, metadata, 12, request).topics
    assert (first.error_code, first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert (second.error_code, len(second.partitions)) == (0, 1)


def test_librdkafkas_producer_makes_its_topic(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    failures: list[object] = []
    producer.produce("made-by-librdkafka", b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(ANSWER_S) == 0
    assert failures == [None]
    assert read_one(cluster, "made-by-librdkafka") == b"v"


def test_kcat_makes_its_topic(cluster: Cluster) -> None:
    require("kcat", "kcat")
    kcat = [shutil.which("kcat") or "kcat", "-b", cluster.bootstrap, "-t", "made-by-kcat"]
    subprocess.run([*kcat, "-P"], input=b"v\n", timeout=ANSWER_S, check=True)
    read = subprocess.run(
        [*kcat, "-C", "-o", "beginning", "-e"], capture_output=True, timeout=ANSWER_S, check=True
    )
    assert read.stdout == b"v\n"


def test_kafka_pythons_producer_makes_its_topic(cluster: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    try:
        sent = producer.send("made-by-kafka-python", b"v").get(ANSWER_S)
    finally:
        producer.close()
    assert (sent.partition, sent.offset) == (0, 0)
    assert read_one(cluster, "made-by-kafka-python") == b"v"


def test_a_consumer_that_comes_first_makes_its_topic_and_reads_what_comes(cluster: Cluster) -> None:
    consumer = KafkaConsumer(
        "made-by-a-consumer",
        bootstrap_servers=cluster.bootstrap,
        group_id="first",
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    )
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    try:
        until("it has the partition", lambda: bool(consumer.poll(500) or consumer.assignment()), ANSWER_S)
        producer.produce("made-by-a-consumer", b"v")
        assert producer.flush(ANSWER_S) == 0
        read: list[bytes] = []

        def came() -> bool:
            for records in consumer.poll(500).values():
                read.extend(record.value for record in records)
            return bool(read)

        until("the record came", came, ANSWER_S)
        assert read == [b"v"]
    finally:
        consumer.close()


def test_dozens_of_topics_of_one_producer_are_all_made(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    names = {f"dozens-{n}" for n in range(DOZENS)}
    failures: list[object] = []
    for name in names:
        producer.produce(name, b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(ANSWER_S) == 0
    assert failures == [None] * DOZENS
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=ANSWER_S)
    assert names <= set(found.topics)

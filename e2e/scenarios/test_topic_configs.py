"""Changes of topic configs by an AdminClient take effect in the running services.

Law: a change affects producers and consumers soon after its answer (the promise is one second; the test allows ten on
a busy machine), with Kafka's errors and Kafka's timestamps. A reset takes effect too. Nothing restarts.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic
from kafscale.wire.batches import BatchHeader, split_batches

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import ask_fetch
from e2e.harness.services import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    import kafka
    from kafka import KafkaAdminClient
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType,
    )
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonResourceType
    from kafka.errors import SecurityDisabledError

log = logging.getLogger(__name__)

FELT_S = 10.0
ANSWER_S = 30.0
SENT_MS = 1_500_000_000_000  # years before the test runs
LINGER_MS = 200

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("configs"))
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    yield producer
    producer.flush(ANSWER_S)


def create(admin: AdminClient, name: str) -> str:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(ANSWER_S)
    return name


def alter(admin: AdminClient, topic: str, op: AlterConfigOpType, key: str, value: str | None = None) -> None:
    entry = ConfigEntry(key, value, incremental_operation=op)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)


def send(
    producer: Producer, topic: str, value: bytes = b"v", key: bytes | None = None
) -> Message | KafkaError:
    """What became of one record."""
    told: Future[Message | KafkaError] = Future()
    producer.produce(
        topic,
        value,
        key,
        timestamp=SENT_MS,
        on_delivery=lambda error, message: told.set_result(message if error is None else error),
    )
    producer.flush(ANSWER_S)
    return told.result(0)


def felt(what: str, condition: Callable[[], bool]) -> None:
    begin = time.monotonic()
    until(what, condition, FELT_S)
    log.info("%s: after %.3f s", what, time.monotonic() - begin)


def code_of(outcome: Message | KafkaError) -> int:
    return outcome.code() if isinstance(outcome, KafkaError) else 0


def newest(cluster: Cluster, topic: str) -> Message:
    """The last record of the topic's one partition."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_S)
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        message = consumer.poll(ANSWER_S)
        assert message is not None
        assert message.error() is None
        return message
    finally:
        consumer.close()


def test_the_largest_message_is_the_topics(admin: AdminClient, producer: Producer) -> None:
    topic = create(admin, "sizes")
    assert code_of(send(producer, topic, bytes(20_000))) == 0
    alter(admin, topic, AlterConfigOpType.SET, "max.message.bytes", "10000")

    def refused() -> bool:
        return code_of(send(producer, topic, bytes(20_000))) == KafkaError.MSG_SIZE_TOO_LARGE

    felt("a large message is refused", refused)
    assert code_of(send(producer, topic, bytes(9_000))) == 0
    alter(admin, topic, AlterConfigOpType.DELETE, "max.message.bytes")
    felt("it is taken again", lambda: not refused())


def test_records_take_the_logs_time_as_soon_as_the_topic_says_so(
    cluster: Cluster,
    admin: AdminClient,
    producer: Producer,
) -> None:
    topic = create(admin, "times")
    assert code_of(send(producer, topic)) == 0
    assert newest(cluster, topic).timestamp() == (TIMESTAMP_CREATE_TIME, SENT_MS)
    alter(admin, topic, AlterConfigOpType.SET, "message.timestamp.type", "LogAppendTime")
    began_ms = time.time_ns() // 1_000_000

    def stamped() -> bool:
        outcome = send(producer, topic)
        assert isinstance(outcome, Message)
        return outcome.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME

    felt("records have the log's time", stamped)
    kind, stamp_ms = newest(cluster, topic).timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert began_ms <= stamp_ms <= time.time_ns() // 1_000_000
    partition = TopicPartition(topic, 0)
    greatest = OffsetSpec.max_timestamp()
    latest = admin.list_offsets({partition: greatest})[partition].result(ANSWER_S)
    assert (latest.offset, latest.timestamp) == (newest(cluster, topic).offset(), stamp_ms)
    by_time = admin.list_offsets({partition: OffsetSpec.for_timestamp(stamp_ms)})[partition].result(ANSWER_S)
    assert by_time.offset == latest.offset


def test_a_compacted_topic_takes_records_with_keys_alone(
    cluster: Cluster,
    admin: AdminClient,
    producer: Producer,
) -> None:
    topic = create(admin, "tables")
    assert code_of(send(producer, topic)) == 0
    alter(admin, topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact")

    def refused() -> bool:
        return code_of(send(producer, topic)) == KafkaError.INVALID_RECORD

    felt("a record without a key is refused", refused)
    assert code_of(send(producer, topic, b"large" * 10_000, key=b"k")) == 0
    assert newest(cluster, topic).key() == b"k"
    alter(admin, topic, AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact")
    felt("it is taken again", lambda: not refused())


def test_a_topics_linger_is_waited_out(admin: AdminClient, producer: Producer) -> None:
    topic = create(admin, "lingering")
    assert code_of(send(producer, topic)) == 0
    alter(admin, topic, AlterConfigOpType.SET, "kafscale.linger.ms", str(LINGER_MS))

    def lingers() -> bool:
        outcome = send(producer, topic)
        assert isinstance(outcome, Message)
        return (outcome.latency() or 0) * 1_000 >= LINGER_MS

    felt("each of three acknowledgements waits", lambda: all(lingers() for _ in range(3)))


def values_read(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """Key, value, time and headers of each record, by librdkafka, which checks the CRC of what it reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        read = consumer.consume(count, ANSWER_S)
    finally:
        consumer.close()
    assert [message.offset() for message in read] == list(range(count))
    return [(m.key(), m.value(), m.timestamp()[1], m.headers()) for m in read]


def stored_headers(cluster: Cluster, topic: str) -> list[BatchHeader]:
    """Of the log's batches, as a Fetch hands them out: they are the stored bytes."""
    headers: list[BatchHeader] = []
    with Raw.to(cluster.bootstrap) as raw:
        while True:
            (part,) = ask_fetch(raw, topic=topic, offset=headers[-1].last_offset + 1 if headers else 0)
            assert part.error_code == 0
            record_set: Any = part.records or b""
            found = [header for header, _ in split_batches(record_set)]
            if not found:
                return headers
            headers += found


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_keeps_batches_in_its_own_codec_and_clients_read_what_was_sent(
    cluster: Cluster, admin: AdminClient, wanted: str
) -> None:
    topic = f"compressed-{wanted}"
    configs = {"compression.type": wanted}
    if wanted not in ("snappy", "uncompressed"):
        configs[f"compression.{wanted}.level"] = "1"
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(ANSWER_S)
    expected = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 100,
            }
        )
        for number in range(100):
            key, value = b"%s-%d" % (codec.encode(), number), b"some value of a record " * (number % 7)
            headers: Any = [("h", b"%d" % number)]
            producer.produce(topic, value, key, timestamp=SENT_MS + number, headers=headers)
            expected.append((key, value, SENT_MS + number, headers))
        assert producer.flush(ANSWER_S) == 0
    assert values_read(cluster, topic, len(expected)) == expected
    stored = stored_headers(cluster, topic)
    assert {header.codec.name.lower() for header in stored} == {wanted.replace("uncompressed", "none")}
    assert sum(header.records_count for header in stored) == len(expected)
    if wanted not in ("snappy", "zstd"):  # those it reads with packages that are not installed
        consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, enable_auto_commit=False)
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        read: list[bytes] = []
        while len(read) < len(expected):
            polled = consumer.poll(timeout_ms=1_000)
            read += [record.value for records in polled.values() for record in records]
        consumer.close()
        assert read == [value for _, value, _, _ in expected]


@pytest.mark.parametrize(
    ("key", "value"),
    [("retention.ms", "-2"), ("segment.bytes", "0"), ("compression.type", "brotli"), ("no.such", "1")],
)
def test_what_cannot_be_set_is_invalid_config_with_its_name(admin: AdminClient, key: str, value: str) -> None:
    topic = create(admin, f"refused-{key}")
    with pytest.raises(KafkaException, match=key) as refused:
        alter(admin, topic, AlterConfigOpType.SET, key, value)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    described = describe(admin, ConfigResource.Type.TOPIC, topic)
    assert all(entry.is_default for entry in described.values())


WITHOUT_EFFECT = {
    "file.delete.delay.ms": "1000",
    "flush.messages": "10000",
    "flush.ms": "1000",
    "index.interval.bytes": "8192",
    "min.insync.replicas": "2",
    "preallocate": "true",
    "segment.index.bytes": "1048576",
    "segment.jitter.ms": "10",
    "segment.ms": "3600000",
    "unclean.leader.election.enable": "true",
}


def test_what_mirrormaker_copies_is_kept_whole_and_records_pass_as_before(
    admin: AdminClient, producer: Producer
) -> None:
    """All configs of a topic at once, as it sets them: one that is refused would lose the others."""
    topic = "copied"
    configs = {**WITHOUT_EFFECT, "retention.ms": "-1", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(ANSWER_S)
    shown = describe(admin, ConfigResource.Type.TOPIC, topic)
    assert {name: entry.value for name, entry in shown.items() if not entry.is_default} == configs
    assert code_of(send(producer, topic, key=b"k")) == 0
    alter(admin, topic, AlterConfigOpType.SET, "min.insync.replicas", "3")
    alter(admin, topic, AlterConfigOpType.DELETE, "segment.ms")
    shown = describe(admin, ConfigResource.Type.TOPIC, topic)
    assert (shown["min.insync.replicas"].value, shown["segment.ms"].is_default) == ("3", True)


@pytest.fixture
def python(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def test_configs_of_a_group_are_kept_listed_and_put_back(
    admin: AdminClient, python: KafkaAdminClient
) -> None:
    """kafka-python alters, and librdkafka reads as well. A group needs no members."""
    session, group = "consumer.session.timeout.ms", "readers"
    resource = PythonResource(PythonResourceType.GROUP, group, configs={session: "50000"})
    python.alter_configs([resource])
    shown = describe(admin, ConfigResource.Type.GROUP, group)
    assert (shown[session].value, shown[session].is_default) == ("50000", False)
    assert shown["consumer.heartbeat.interval.ms"].value == "5000"
    assert python.list_config_resources(["GROUP"]) == {"group": [group]}
    entry = ConfigEntry(session, None, incremental_operation=AlterConfigOpType.DELETE)
    changed = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(ANSWER_S)
    assert describe(admin, ConfigResource.Type.GROUP, group)[session].value == "45000"
    assert python.list_config_resources(["GROUP"]) == {}
    entry = ConfigEntry(session, "1", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    with pytest.raises(KafkaException, match=session) as refused:
        admin.incremental_alter_configs([changed])[changed].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_there_are_no_acls_and_no_reassignments(python: KafkaAdminClient) -> None:
    anything = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError, match="No Authorizer"):
        python.describe_acls(anything)
    assert python.list_partition_reassignments() == {}


def describe(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(ANSWER_S)
    return found


def test_a_broker_says_what_it_is_and_cannot_be_changed(cluster: Cluster, admin: AdminClient) -> None:
    (broker,) = admin.list_topics(timeout=ANSWER_S).brokers.values()
    configs = describe(admin, ConfigResource.Type.BROKER, str(broker.id))
    assert configs["broker.id"].value == str(broker.id)
    assert configs["advertised.listeners"].value == f"PLAINTEXT://{cluster.bootstrap}"
    assert configs["message.max.bytes"].value == "1048588"
    entry = ConfigEntry("message.max.bytes", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.id), incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

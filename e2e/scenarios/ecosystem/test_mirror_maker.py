"""A move from an Apache Kafka with MirrorMaker 2: records, configs of topics, and the places of groups.

The mirror and services of KafScale are killed while it copies. It copies at least once, and a group that moves reads
every record that it had not read, and does not begin at the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from e2e.harness.apache import ApacheKafka
from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import (
    ADMIN_TIMEOUT_S,
    PARTITIONS,
    Program,
    assert_complete,
    create_topics,
    distinct,
    java,
    properties,
    values,
    write,
)
from e2e.harness.kafka_tools import require_java

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

TOPIC, GROUP = "orders", "billing"
READ, HALF, COUNT = 600, 1_500, 3_000
RETENTION_MS = "1234567890"
POLL_S = 5.0


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    require_java()
    kafka = ApacheKafka(tmp_path / "kafka", flush_before_ack=False, heap="512m")
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.stop()


def mirror(source: str, target: str, folder: Path) -> Program:
    """As a move needs it: topics keep their names, and offsets of groups are translated."""
    factors = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
    storages = ("config.storage.", "offset.storage.", "status.storage.")
    settings = {
        "clusters": "old, new",
        "old.bootstrap.servers": source,
        "new.bootstrap.servers": target,
        "old->new.enabled": "true",
        "new->old.enabled": "false",
        "old->new.topics": TOPIC,
        "old->new.groups": ".*",
        "old->new.sync.group.offsets.enabled": "true",
        "old->new.sync.group.offsets.interval.seconds": 1,
        "old->new.emit.checkpoints.interval.seconds": 1,
        "old->new.sync.topic.configs.interval.seconds": 1,
        "old->new.offset.lag.max": 10,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "offset.flush.interval.ms": 500,
        "tasks.max": 2,
        **{f"{name}replication.factor": 1 for name in (*factors, *storages)},
    }
    path = properties(folder / "mirror.properties", settings)
    return Program("mirror", java("org.apache.kafka.connect.mirror.MirrorMaker", str(path)), folder)


def read_some(bootstrap: str, count: int | None) -> list[int]:
    """What the group reads and commits: so many records, or all until nothing more comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[int] = []
    try:
        while count is None or len(found) < count:
            message = consumer.poll(POLL_S)
            if message is None:
                if count is None and found:
                    break
                continue
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def places(bootstrap: str) -> dict[int, int]:
    """Partition -> the group's committed offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    found = future.result(ADMIN_TIMEOUT_S).topic_partitions or []
    return {each.partition: each.offset for each in found if each.topic == TOPIC and each.offset >= 0}


def retention_ms(bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
    return str(future.result(ADMIN_TIMEOUT_S)["retention.ms"].value)


def test_a_topic_and_a_group_move(
    cluster: Cluster, kafka: ApacheKafka, programs: list[Program], tmp_path: Path
) -> None:
    create_topics(kafka.bootstrap, TOPIC, config={"retention.ms": RETENTION_MS})
    write(kafka.bootstrap, TOPIC, range(HALF))
    read_before = set(read_some(kafka.bootstrap, READ))
    moving = mirror(kafka.bootstrap, cluster.bootstrap, tmp_path)
    programs.append(moving)

    def copied(count: int) -> bool:
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, ADMIN_TIMEOUT_S)
        return topics.topics[TOPIC].error is None and distinct(cluster.bootstrap, TOPIC) >= count

    moving.start()
    moving.wait_for("the first are copied", lambda: copied(1))
    moving.kill()
    write(kafka.bootstrap, TOPIC, range(HALF, COUNT))
    moving.start()
    moving.wait_for("more than the first half is copied", lambda: copied(HALF + 1))
    for role in ("produce", "coordinator", "admin", "frontdoor"):
        cluster.kill_one(role, 0)
    moving.wait_for("everything is copied", lambda: copied(COUNT))
    moving.wait_for("the group has places", lambda: len(places(cluster.bootstrap)) == PARTITIONS)
    moving.wait_for("the config is there", lambda: retention_ms(cluster.bootstrap) == RETENTION_MS)
    moving.stop()

    assert_complete(values(cluster.bootstrap, TOPIC), COUNT)
    assert all(place > 0 for place in places(cluster.bootstrap).values())
    read_after = set(read_some(cluster.bootstrap, None))
    assert read_before | read_after == set(range(COUNT))
    assert len(read_after) < COUNT

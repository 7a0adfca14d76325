"""A move from an Apache Kafka with MirrorMaker 2: records, configs of topics, and the places of groups.

The mirror and services of KafScale are killed while it copies. It copies at least once, and a group that moves reads
every record that it had not read, and does not begin at the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from e2e.harness.apache import ApacheKafka
from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import (
    ADMIN_TIMEOUT_S,
    PARTITIONS,
    Program,
    assert_complete,
    bounds,
    create_topics,
    distinct,
    java,
    properties,
    values,
    write,
)
from e2e.harness.kafka_tools import require_java

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

TOPIC, GROUP, BEHIND = "orders", "billing", "archive"
HALF, MOST, COUNT = 1_500, 2_940, 3_000
BEHIND_AT = 100  # records of each partition that this group has read
RETENTION_MS = "1234567890"
READ_WITHIN_S = 60.0


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
    return Program(
        "mirror", java("org.apache.kafka.connect.mirror.MirrorMaker", str(path), "--clusters", "new"), folder
    )


def consumer_of(group: str, bootstrap: str) -> Consumer:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([TOPIC])
    return consumer


def read_until(group: str, bootstrap: str, upto: Mapping[int, int]) -> set[int]:
    """What the group reads of each partition, from where it was up to an offset, which it commits."""
    consumer = consumer_of(group, bootstrap)
    found: set[int] = set()
    reached = dict.fromkeys(upto, 0)
    try:
        while any(reached[partition] < end for partition, end in upto.items()):
            message = consumer.poll(READ_WITHIN_S)
            assert message is not None, f"silence at {reached}, {upto} are wanted"
            assert message.error() is None, message.error()
            partition, offset = message.partition() or 0, message.offset() or 0
            reached[partition] = offset + 1
            if offset < upto[partition]:
                found.add(int(message.value() or b""))
        consumer.commit(offsets=[TopicPartition(TOPIC, *place) for place in upto.items()], asynchronous=False)
    finally:
        consumer.close()
    return found


def ends(bootstrap: str) -> dict[int, int]:
    return {partition: end for partition, (_, end) in bounds(bootstrap, TOPIC).items()}


def quiet_admin(bootstrap: str) -> AdminClient:
    """A new one for each request.

    After the front door has died, an old one may wait for its connection to the coordinator, which librdkafka does not
    open again while it has another connection, to the bootstrap address.
    """
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def committed(group: str, bootstrap: str) -> dict[int, int]:
    """Partition -> the group's committed offset."""
    admin = quiet_admin(bootstrap)
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = future.result(ADMIN_TIMEOUT_S).topic_partitions or []
    return {each.partition: each.offset for each in found if each.topic == TOPIC and each.offset >= 0}


def retention_ms(bootstrap: str) -> str:
    admin = quiet_admin(bootstrap)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
    return str(future.result(ADMIN_TIMEOUT_S)["retention.ms"].value)


def copied(bootstrap: str, count: int) -> bool:
    """Asks for all topics: a question for this one would create it, with the wrong number of partitions."""
    topics = quiet_admin(bootstrap).list_topics(timeout=ADMIN_TIMEOUT_S).topics
    return TOPIC in topics and distinct(bootstrap, TOPIC) >= count


def assert_nothing_skipped(group: str, before: Set[int], bootstrap: str) -> None:
    """The group goes on where its offsets are, or at the first record of a partition without one."""
    after = read_until(group, bootstrap, ends(bootstrap))
    assert before | after == set(range(COUNT)), group


def test_a_topic_and_its_groups_move(
    cluster: Cluster, kafka: ApacheKafka, programs: list[Program], tmp_path: Path
) -> None:
    create_topics(kafka.bootstrap, TOPIC, config={"retention.ms": RETENTION_MS})
    write(kafka.bootstrap, TOPIC, range(HALF))
    read = {
        BEHIND: read_until(BEHIND, kafka.bootstrap, dict.fromkeys(range(PARTITIONS), BEHIND_AT)),
        GROUP: read_until(GROUP, kafka.bootstrap, ends(kafka.bootstrap)),
    }
    moving = mirror(kafka.bootstrap, cluster.bootstrap, tmp_path)
    programs.append(moving)

    moving.start()
    moving.wait_for("the first are copied", lambda: copied(cluster.bootstrap, 1))
    moving.kill()
    moving.start()
    moving.wait_for("the first half is copied", lambda: copied(cluster.bootstrap, HALF))
    moving.wait_for("the group has offsets", lambda: len(committed(GROUP, cluster.bootstrap)) == PARTITIONS)
    half = ends(cluster.bootstrap)

    write(kafka.bootstrap, TOPIC, range(HALF, MOST))
    moving.wait_for("some of the second half is copied", lambda: copied(cluster.bootstrap, HALF + 1))
    for role in ("produce", "coordinator", "admin", "frontdoor"):
        cluster.kill_one(role, 0)
    read[GROUP] |= read_until(GROUP, kafka.bootstrap, ends(kafka.bootstrap))
    moving.wait_for(
        "the group's offsets follow",
        lambda: all(committed(GROUP, cluster.bootstrap).get(each, 0) > end for each, end in half.items()),
    )
    write(kafka.bootstrap, TOPIC, range(MOST, COUNT))
    moving.wait_for("everything is copied", lambda: copied(cluster.bootstrap, COUNT))
    moving.wait_for("the config is there", lambda: retention_ms(cluster.bootstrap) == RETENTION_MS)
    moving.stop()

    assert_complete(values(cluster.bootstrap, TOPIC), COUNT)
    for group, before in read.items():
        assert_nothing_skipped(group, before, cluster.bootstrap)

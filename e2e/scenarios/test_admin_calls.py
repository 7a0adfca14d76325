"""Admin calls to a cluster of three front doors, with the admin clients of librdkafka and kafka-python.

Law: the joined answers of all brokers have each partition once, with its committed bytes. All pages of topics together
equal Metadata. Every front door describes the same cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.wire.errors import ErrorCode

from e2e.harness.bundles import settle
from e2e.harness.cluster import Cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    from kafka import KafkaAdminClient
    from kafka.structs import TopicPartition as KafkaPythonPartition

TOPICS = {"orders": 5, "bills": 3, "empty": 2}
RECORDS = 12
DOORS = 3

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("admin-calls"), scale={"frontdoor": DOORS, "produce": 2}
    )
    cluster.start()
    try:
        fill(cluster)
        yield cluster
    finally:
        cluster.kill()


def fill(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        done.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for name in ("orders", "bills"):
        for n in range(RECORDS * TOPICS[name]):
            producer.produce(name, b"v" * 100, partition=n % TOPICS[name])
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def python(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.doors)
    yield client
    client.close()


@pytest.fixture(scope="module")
def librdkafka(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.doors[1]})


def test_both_clients_see_one_cluster_of_three_brokers(
    cluster: Cluster, python: KafkaAdminClient, librdkafka: AdminClient
) -> None:
    told = python.describe_cluster()
    nodes = librdkafka.describe_cluster(include_authorized_operations=True).result(60)
    assert told["cluster_id"] == nodes.cluster_id
    assert told["controller_id"] == nodes.controller.id == 1
    assert [f"{broker['host']}:{broker['port']}" for broker in told["brokers"]] == cluster.doors
    assert sorted(f"{node.host}:{node.port}" for node in nodes.nodes) == cluster.doors
    assert not any(broker["is_fenced"] for broker in told["brokers"])
    assert nodes.authorized_operations


def rows(topics: list[dict[str, Any]]) -> list[tuple[str, str, int, int, int]]:
    """Name, id, partition, leader and its epoch."""
    return [
        (
            topic["name"],
            str(topic["topic_id"]),
            part["partition_index"],
            part["leader_id"],
            part["leader_epoch"],
        )
        for topic in topics
        for part in topic["partitions"]
    ]


@pytest.mark.parametrize("limit", [1, 3, 2000])
def test_pages_of_topics_together_are_what_metadata_says(python: KafkaAdminClient, limit: int) -> None:
    pages, cursor = [], None
    while True:
        page = python.describe_topic_partitions([], response_partition_limit=limit, cursor=cursor)
        pages += rows(page["topics"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    told = rows(python.describe_topics())
    assert pages == sorted(told)
    assert len(pages) == sum(TOPICS.values())


def sizes(answers: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Topic, partition and bytes, of all brokers' directories."""
    found = []
    for answer in answers:
        (directory,) = answer["log_dirs"]
        assert (directory["error_code"], directory["log_dir"]) == (0, "objects")
        for topic in directory["topics"]:
            found += [
                (topic["name"], part["partition_index"], part["partition_size"])
                for part in topic["partitions"]
            ]
    return sorted(found)


def test_directories_of_all_brokers_hold_each_partition_once(
    cluster: Cluster, python: KafkaAdminClient
) -> None:
    heads = {name: cluster.inside().heads(name) for name in TOPICS}
    expected = [
        (name, number, heads[name][number].bytes if number in heads[name] else 0)
        for name, count in sorted(TOPICS.items())
        for number in range(count)
    ]
    assert {size > 0 for name, _, size in expected if name != "empty"} == {True}
    answers = python.describe_log_dirs()
    assert len(answers) == DOORS
    assert sizes(answers) == expected
    some = python.describe_log_dirs({"orders": [4, 0], "no such topic": [0]})
    assert sizes(some) == [each for each in expected if each[:2] in (("orders", 0), ("orders", 4))]


def test_the_sizes_of_directories_are_those_of_the_objects(
    cluster: Cluster, python: KafkaAdminClient
) -> None:
    settle(cluster, "orders")
    for name, number, size in sizes(python.describe_log_dirs(["orders"])):
        folder = cluster.data_dir / "objects" / "default" / name / str(number)
        assert sum(path.stat().st_size for path in folder.glob("*.kfs")) == size


def test_the_producers_of_every_partition_are_known_to_its_owner(python: KafkaAdminClient) -> None:
    wanted = [KafkaPythonPartition(name, n) for name, count in TOPICS.items() for n in range(count)]
    states = python.describe_producers(wanted)
    assert set(states) == set(wanted)
    ids = set()
    for partition, state in states.items():
        if partition.topic == "empty":
            assert state.active_producers == []
            continue
        (producer,) = state.active_producers
        assert (producer.last_sequence, producer.coordinator_epoch) == (RECORDS - 1, -1)
        assert producer.current_transaction_start_offset == -1
        ids.add(producer.producer_id)
    assert len(ids) == 1


def code_of(error: object) -> int:
    """librdkafka's client returns its errors, or raises them in an exception."""
    bare = error.args[0] if isinstance(error, KafkaException) else error
    return int(bare.code()) if isinstance(bare, KafkaError) else 0


def test_no_election_is_needed(python: KafkaAdminClient, librdkafka: AdminClient) -> None:
    asked = [TopicPartition("orders", 0), TopicPartition("orders", 99), TopicPartition("no-topic", 0)]
    results = librdkafka.elect_leaders(ElectionType.PREFERRED, asked).result(60)
    codes = {(part.topic, part.partition): code_of(error) for part, error in results.items()}
    assert codes == {
        ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("orders", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert librdkafka.elect_leaders(ElectionType.UNCLEAN).result(60) == {}
    answer = python.elect_leaders(0)  # which names all of them itself
    codes_of_all = [
        part.error_code for result in answer.replica_election_results for part in result.partition_result
    ]
    assert codes_of_all == [ErrorCode.ELECTION_NOT_NEEDED] * sum(TOPICS.values())


def test_what_has_configs_is_listed_and_can_be_described(python: KafkaAdminClient) -> None:
    listed = python.list_config_resources()
    assert listed == {"topic": sorted(TOPICS), "broker": [str(n) for n in range(1, DOORS + 1)]}
    assert python.list_config_resources(["CLIENT_METRICS"]) == {}

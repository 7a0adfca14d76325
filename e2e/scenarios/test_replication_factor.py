"""Infrastructure as code asks for a replication factor and finds it again at the second apply (ADR 17).

The requests are those of Terraform's provider (sarama: CreateTopics, Metadata, DescribeConfigs) and of topicctl
(kafka-go: the same, in other versions), so every version of the three is replayed. Laws, on one front door: the second
plan is empty, nothing is under-replicated, and nothing is below `min.insync.replicas`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafscale.wire.schema import create_topics, describe_configs, metadata

from e2e.harness.apache import kafka_version
from e2e.harness.cluster import Cluster
from e2e.harness.kafka_tools import require_java, tools
from e2e.harness.raw import Raw
from e2e.harness.requests import ask

TOPIC_RESOURCE = 2
CREATE_VERSIONS, METADATA_VERSIONS, CONFIGS_VERSIONS = range(8), range(14), range(5)
REPORTS = ("under-min-isr-partitions", "under-replicated-partitions", "unavailable-partitions")

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Wanted:
    """What a definition says of a topic, and what a tool finds of it."""

    partitions: int
    factor: int
    in_sync: str


DEFINITIONS = [Wanted(3, factor, in_sync) for factor, in_sync in ((1, "1"), (2, "1"), (3, "2"), (3, "3"))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("factor"))
    cluster.start()
    yield cluster
    cluster.kill()


def apply(raw: Raw, name: str, wanted: Wanted, version: int) -> None:
    config = create_topics.CreateTopicsRequestTopicConfig(name="min.insync.replicas", value=wanted.in_sync)
    topic = create_topics.CreateTopicsRequestTopic(
        name=name, num_partitions=wanted.partitions, replication_factor=wanted.factor, configs=[config]
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (made,) = ask(raw, create_topics, version, request).topics
    assert made.error_code == 0, made


def found(raw: Raw, name: str, version: int) -> Wanted:
    """As the tools look: Terraform counts the replicas of each partition, topicctl those in sync."""
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    (topic,) = ask(raw, metadata, version, asked).topics
    counts = {len(set(part.replica_nodes)) for part in topic.partitions}
    assert counts == {len(set(part.isr_nodes)) for part in topic.partitions}
    resource = describe_configs.DescribeConfigsRequestResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["min.insync.replicas"]
    )
    described = ask(
        raw,
        describe_configs,
        min(version, CONFIGS_VERSIONS[-1]),
        describe_configs.DescribeConfigsRequest(resources=[resource]),
    )
    ((config,),) = (each.configs for each in described.results)
    (factor,) = counts
    return Wanted(len(topic.partitions), factor, config.value)


@pytest.mark.parametrize("wanted", DEFINITIONS, ids=str)
def test_the_second_plan_is_empty_in_every_version(cluster: Cluster, wanted: Wanted) -> None:
    with Raw.to(cluster.bootstrap) as raw:
        for version in CREATE_VERSIONS:
            name = f"plan-{wanted.factor}-{wanted.in_sync}-{version}"
            apply(raw, name, wanted, version)
            for reading in METADATA_VERSIONS:
                assert found(raw, name, reading) == wanted


def test_kafkas_tool_reports_no_healthy_partition(cluster: Cluster, tmp_path: Path) -> None:
    require_java()
    with Raw.to(cluster.bootstrap) as raw:
        for number, wanted in enumerate(DEFINITIONS):
            apply(raw, f"report-{number}", wanted, 7)
    with tools(kafka_version(), cluster.bootstrap, tmp_path) as jvm:
        jvm.run("kafka-topics --create --topic report-late")
        jvm.run(
            "kafka-configs --alter --entity-type topics --entity-name report-late --add-config min.insync.replicas=2"
        )
        described = jvm.run("kafka-topics --describe --topic report-2")
        assert described.out.count("ReplicationFactor: 3") == 1
        for report in REPORTS:
            answer = jvm.run(f"kafka-topics --describe --{report}")
            assert (answer.exit, answer.out) == (0, ""), report

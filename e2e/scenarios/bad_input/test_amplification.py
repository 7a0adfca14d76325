"""Small requests with large answers: one name many times, all topics at once, thousands of topics.

Law: each name is answered once. If an answer would be too large, only its own request fails. One Metadata creates a few
topics, however many it names. The peak memory of the admin stays within a bound, and its stream to the front door
continues: no request of another connection is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.raw_producer import Producer
from e2e.harness.requests import TOPIC, ask

pytestmark = pytest.mark.timeout(240)

WIDE, PARTITIONS = "wide", 10_000
ANSWER_BYTES_MAX = 32 << 20  # KAFSCALE_ANSWER_BYTES_MAX
PEAK_MIB_MAX = 256
"""Memory above that of the process before: an answer of the largest size, its rows, and the request."""
TOPIC_KIND, GROUP_KIND = 2, 32
CREATED_MAX = 10  # KAFSCALE_AUTO_CREATE_TOPICS_PER_REQUEST


@contextmanager
def within_memory(cluster: Cluster, role: str = "admin") -> Iterator[None]:
    (pid,) = cluster.pids(role)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted from here
    before = memory_mib(pid, "VmRSS")
    yield
    assert memory_mib(pid, "VmHWM") - before < PEAK_MIB_MAX


def memory_mib(pid: int, field: str) -> float:
    (line,) = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(field)
    ]
    return int(line.split()[1]) / 1024


def delete(raw: Raw, names: list[str]) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)
    assert {each.error_code for each in ask(raw, delete_topics, 5, request).responses} <= {0}


@pytest.fixture(scope="module")
def wide(cluster: Cluster) -> Iterator[str]:
    topic = create_topics.CreateTopicsRequestTopic(name=WIDE, num_partitions=PARTITIONS, replication_factor=1)
    with Raw.to(cluster.bootstrap) as raw:
        (made,) = ask(raw, create_topics, 7, create_topics.CreateTopicsRequest(topics=[topic])).topics
    assert made.error_code == 0
    yield WIDE
    with Raw.to(cluster.bootstrap) as raw:
        delete(raw, [WIDE])


def test_a_wide_topic_named_four_hundred_times_is_told_once(cluster: Cluster, raw: Raw, wide: str) -> None:
    named = [metadata.MetadataRequestTopic(name=wide)] * 400
    with within_memory(cluster):
        answer = ask(raw, metadata, 9, metadata.MetadataRequest(topics=named))
    (topic,) = answer.topics
    assert (topic.error_code, len(topic.partitions)) == (0, PARTITIONS)


def test_a_transaction_has_ten_thousand_partitions_and_no_more(cluster: Cluster, raw: Raw, wide: str) -> None:
    producer = Producer(raw, "wide")
    assert producer.init(transaction_timeout_ms=900_000) == 0
    with within_memory(cluster, "coordinator"):
        everywhere = [(wide, number) for number in range(PARTITIONS)]
        assert set(producer.add(*everywhere)) == {0}
        assert producer.add((TOPIC, 0)) == [ErrorCode.INVALID_TXN_STATE]
        assert producer.add((TOPIC, 0), version=5) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_a_topic_whose_configs_are_asked_for_a_hundred_thousand_times_is_described_once(
    cluster: Cluster, raw: Raw
) -> None:
    resource = describe_configs.DescribeConfigsRequestResource(
        resource_type=TOPIC_KIND, resource_name=TOPIC, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=[resource] * 131_000, include_synonyms=True, include_documentation=True
    )
    with within_memory(cluster):
        (result,) = ask(raw, describe_configs, 4, request).results
    assert result.error_code == 0
    assert len(result.configs) > 30


def test_configs_of_more_groups_than_an_answer_holds_are_refused_and_not_built(
    cluster: Cluster, raw: Raw
) -> None:
    resources = [
        describe_configs.DescribeConfigsRequestResource(
            resource_type=GROUP_KIND, resource_name=f"g{n}", configuration_keys=None
        )
        for n in range(40_000)
    ]
    request = describe_configs.DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )
    with within_memory(cluster):
        body = raw.ask(describe_configs.API_KEY, 4, describe_configs.encode_request(request, 4))
    assert len(body) < 1.5 * ANSWER_BYTES_MAX
    codes = Counter(each.error_code for each in describe_configs.decode_response(body, 4).results)
    assert set(codes) == {0, ErrorCode.INVALID_REQUEST}
    assert codes.total() == len(resources)


def test_one_metadata_creates_a_few_topics_however_many_it_names(cluster: Cluster, raw: Raw) -> None:
    names = [f"by-asking-{n}" for n in range(5_000)]
    named = [metadata.MetadataRequestTopic(name=name) for name in names]
    with within_memory(cluster):
        answer = ask(raw, metadata, 9, metadata.MetadataRequest(topics=named))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    everything = ask(raw, metadata, 9, metadata.MetadataRequest(topics=None)).topics
    made = [topic.name for topic in everything if topic.name in set(names)]
    assert len(made) == CREATED_MAX
    delete(raw, made)


@pytest.mark.parametrize("kind", [TOPIC_KIND, GROUP_KIND])
def test_a_value_of_megabytes_is_no_config(cluster: Cluster, raw: Raw, kind: int) -> None:
    name = "segment.ms" if kind == TOPIC_KIND else "consumer.session.timeout.ms"
    entry = incremental_alter_configs.IncrementalAlterConfigsRequestAlterableConfig(
        name=name, value=" " * (8 << 20) + "45000"
    )
    resource = incremental_alter_configs.IncrementalAlterConfigsRequestResource(
        resource_type=kind, resource_name=TOPIC, configs=[entry]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    with within_memory(cluster):
        (answer,) = ask(raw, incremental_alter_configs, 1, request).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.error_message) < 200

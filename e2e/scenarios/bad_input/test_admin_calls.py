"""Numbers, names and bytes that no operator's tool should send.

Law: each ends in the right Kafka error or a clean close. After an answer, the connection stays usable.
"""

from __future__ import annotations

from types import ModuleType

import pytest
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
    offset_for_leader_epoch,
)

from e2e.harness.raw import Raw
from e2e.harness.requests import INT32_MAX, INT32_MIN, TOPIC, ask, create, usable

pytestmark = pytest.mark.timeout(120)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_PARTITIONS = [-1, 2, INT32_MAX, INT32_MIN]
BAD_NAMES = ["", "..", "a/b", "../../etc", "n" * 250, "nul\0", "ünïcode", "@kafscale"]
APIS = {
    describe_acls: (2, 3),  # ten bytes of 255 are a filter of v1
    create_acls: (1, 3),
    delete_acls: (1, 3),
    list_partition_reassignments: (0, 0),
    describe_cluster: (0, 2),
    describe_log_dirs: (0, 5),
    describe_producers: (0, 0),
    describe_topic_partitions: (0, 0),
    elect_leaders: (0, 2),
    list_config_resources: (0, 1),
    create_topics: (0, 1),
    delete_topics: (0, 0),
    offset_for_leader_epoch: (0, 1),
}
VERSIONS = [(api, version) for api, (low, high) in APIS.items() for version in range(low, high + 1)]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "NAME", each))
@pytest.mark.parametrize("body", [b"\x7f", b"\xff" * 3, b"\x7f\xff\xff"])
def test_bytes_that_are_no_request_end_the_connection(
    raw: Raw, api: ModuleType, version: int, body: bytes
) -> None:
    raw.request(api.API_KEY, version, [body])
    assert raw.is_closed()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (-1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (127, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_an_endpoint_that_is_no_brokers_is_refused(raw: Raw, kind: int, code: ErrorCode) -> None:
    request = describe_cluster.DescribeClusterRequest(endpoint_type=kind)
    assert ask(raw, describe_cluster, 1, request).error_code == code
    assert usable(raw)


@pytest.mark.parametrize("limit", [0, -1, INT32_MIN])
def test_a_page_always_has_room_for_one_partition(raw: Raw, limit: int) -> None:
    topic = describe_topic_partitions.DescribeTopicPartitionsRequestTopicRequest(name=TOPIC)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[topic], response_partition_limit=limit
    )
    answer = ask(raw, describe_topic_partitions, 0, request)
    assert [part.partition_index for part in answer.topics[0].partitions] == [0]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (TOPIC, 1)


@pytest.mark.parametrize(("partition", "code"), [(-1, 42), (INT32_MIN, 42), (2, 0), (INT32_MAX, 0)])
def test_a_cursor_may_stand_behind_the_last_partition_but_not_before_the_first(
    raw: Raw, partition: int, code: int
) -> None:
    topic = describe_topic_partitions.DescribeTopicPartitionsRequestTopicRequest(name=TOPIC)
    cursor = describe_topic_partitions.DescribeTopicPartitionsRequestCursor(TOPIC, partition)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[topic], cursor=cursor)
    answer = ask(raw, describe_topic_partitions, 0, request)
    assert [(each.error_code, each.partitions) for each in answer.topics] == [(code, [])]
    assert answer.next_cursor is None


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_described_as_no_topic_and_elects_nobody(raw: Raw, name: str) -> None:
    topic = describe_topic_partitions.DescribeTopicPartitionsRequestTopicRequest(name=name)
    pages = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[topic])
    (described,) = ask(raw, describe_topic_partitions, 0, pages).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = elect_leaders.ElectLeadersRequestTopicPartitions(topic=name, partitions=[0])
    elected = ask(raw, elect_leaders, 2, elect_leaders.ElectLeadersRequest(topic_partitions=[wanted]))
    assert elected.replica_election_results[0].partition_result[0].error_code == UNKNOWN
    asked = describe_producers.DescribeProducersRequestTopic(name=name, partition_indexes=[0])
    producers = ask(raw, describe_producers, 0, describe_producers.DescribeProducersRequest(topics=[asked]))
    assert producers.topics[0].partitions[0].error_code == UNKNOWN
    held = describe_log_dirs.DescribeLogDirsRequestDescribableDirTopic(topic=name, partitions=[0])
    dirs = ask(raw, describe_log_dirs, 4, describe_log_dirs.DescribeLogDirsRequest(topics=[held]))
    assert (dirs.error_code, dirs.results[0].topics) == (0, [])


@pytest.mark.parametrize("part", NO_PARTITIONS)
def test_a_partition_that_is_not_there_has_no_producers_no_bytes_and_no_election(raw: Raw, part: int) -> None:
    asked = describe_producers.DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[part, 0])
    answer = ask(raw, describe_producers, 0, describe_producers.DescribeProducersRequest(topics=[asked]))
    assert [each.error_code for each in answer.topics[0].partitions] == [UNKNOWN, 0]
    wanted = elect_leaders.ElectLeadersRequestTopicPartitions(topic=TOPIC, partitions=[part])
    elected = ask(raw, elect_leaders, 2, elect_leaders.ElectLeadersRequest(topic_partitions=[wanted]))
    assert elected.replica_election_results[0].partition_result[0].error_code == UNKNOWN
    held = describe_log_dirs.DescribeLogDirsRequestDescribableDirTopic(topic=TOPIC, partitions=[part, 0])
    dirs = ask(raw, describe_log_dirs, 4, describe_log_dirs.DescribeLogDirsRequest(topics=[held]))
    assert [each.partition_index for each in dirs.results[0].topics[0].partitions] == [0]


@pytest.mark.parametrize("kind", [-1, 2, 127])
def test_an_election_of_no_type_is_an_invalid_request(raw: Raw, kind: int) -> None:
    request = elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=None)
    assert ask(raw, elect_leaders, 2, request).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", [-1, 0, 1, 3, 127])
def test_resources_of_no_type_are_not_listed(raw: Raw, kind: int) -> None:
    request = list_config_resources.ListConfigResourcesRequest(resource_types=[kind])
    answer = ask(raw, list_config_resources, 1, request)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


INVALID = ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("count", "code"),
    [*((count, INVALID) for count in (2, 1, 0, -1, INT32_MIN)), (INT32_MAX, ErrorCode.POLICY_VIOLATION)],
)
def test_partitions_that_cannot_be_are_not_made(raw: Raw, count: int, code: int) -> None:
    asked = create_partitions.CreatePartitionsRequestTopic(name=TOPIC, count=count, assignments=None)
    for validate_only in (True, False):
        request = create_partitions.CreatePartitionsRequest(topics=[asked], validate_only=validate_only)
        (result,) = ask(raw, create_partitions, 3, request).results
        assert result.error_code == code


def test_a_name_that_metrics_could_not_tell_from_another_is_refused(raw: Raw) -> None:
    assert create(raw, "two.names") == ErrorCode.NONE
    assert create(raw, "two_names") == ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = delete_topics.DeleteTopicsRequestTopicState(name="two.names")
    answer = ask(raw, delete_topics, 6, delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert [each.error_code for each in answer.responses] == [0]

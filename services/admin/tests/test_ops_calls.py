"""What operators' tools ask of the cluster: DescribeCluster, DescribeTopicPartitions, ElectLeaders."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.admin.handlers import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
)
from kafscale.admin.plan import NewTopic
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Listener
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_acls as create_acls_schema
from kafscale.wire.schema import delete_acls as delete_acls_schema
from kafscale.wire.schema import describe_acls as acls_schema
from kafscale.wire.schema import describe_client_quotas as quotas_schema
from kafscale.wire.schema import describe_cluster as cluster_schema
from kafscale.wire.schema import describe_log_dirs as dirs_schema
from kafscale.wire.schema import describe_topic_partitions as pages_schema
from kafscale.wire.schema import elect_leaders as elect_schema
from kafscale.wire.schema import list_config_resources as list_schema
from kafscale.wire.schema import list_partition_reassignments as reassign_schema

from services.admin.tests.harness import Admin, condemned, created, running

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- DescribeCluster ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described_as_metadata_does(admin: Admin, version: int) -> None:
    outside = Listener(name="PLAINTEXT", host="out", port=1)
    await admin.register(2, Listener(name="INTERNAL", host="in", port=2), outside, rack="a")
    await admin.register(1)
    request = cluster_schema.DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=True
    )
    answer = await admin.ask(describe_cluster, cluster_schema, request, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, admin.context.cluster_id, 1)
    assert [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in answer.brokers] == [
        (1, "127.0.0.1", 9001, None, False),
        (2, "out", 1, "a", False),
    ]
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


async def test_operations_are_told_only_to_who_asks(admin: Admin) -> None:
    answer = await admin.ask(describe_cluster, cluster_schema, cluster_schema.DescribeClusterRequest(), 2)
    assert answer.cluster_authorized_operations == -(2**31)
    assert (answer.brokers, answer.controller_id) == ([], -1)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (9, 115)],
)
async def test_only_brokers_can_be_asked_for(admin: Admin, kind: int, code: int) -> None:
    request = cluster_schema.DescribeClusterRequest(endpoint_type=kind)
    answer = await admin.ask(describe_cluster, cluster_schema, request, 1)
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message


# --- DescribeTopicPartitions -------------------------------------------------------------------


async def page(admin: Admin, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = pages_schema.DescribeTopicPartitionsRequest(
        topics=[pages_schema.DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=pages_schema.DescribeTopicPartitionsRequestCursor(*cursor) if cursor else None,
    )
    return await admin.ask(describe_topic_partitions, pages_schema, request, 0)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 2000])
@pytest.mark.parametrize("named", [False, True])
async def test_pages_put_together_name_every_partition_once_and_in_order(
    admin: Admin, limit: int, named: bool
) -> None:
    await admin.register(1)
    for name, partitions in (("b", 3), ("a", 2), ("c", 4)):
        await created(admin, name, partitions)
    await condemned(admin, "bb")
    found: list[tuple[str, int]] = []
    cursor = None
    for _ in range(20):
        answer = await page(admin, *("c", "a", "b") if named else (), limit=limit, cursor=cursor)
        numbers = [(topic, number) for topic, own in shown(answer) for number in own]
        assert 0 < len(numbers) <= limit
        found += numbers
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert found == [(name, n) for name, count in (("a", 2), ("b", 3), ("c", 4)) for n in range(count)]


async def test_a_page_says_of_a_partition_what_metadata_says(admin: Admin) -> None:
    await admin.register(4)
    topic = await created(admin, "t", 2)
    await admin.etcd.put(admin.keys.owner(topic.topic_id, 1), encode_owner(OwnerRecord(epoch=5, owner="1/b")))
    await admin.owners.refresh()
    (described,) = (await page(admin, "t")).topics
    assert described.topic_id == topic.topic_id
    assert described.topic_authorized_operations == 0b1101_1111_1000
    assert [(p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes) for p in described.partitions] == [
        (4, 1, [4], [4]),
        (4, 5, [4], [4]),
    ]
    assert [(p.eligible_leader_replicas, p.last_known_elr) for p in described.partitions] == [([], [])] * 2


async def test_topics_that_are_not_there_have_their_error_and_are_not_created(admin: Admin) -> None:
    await admin.register(1)
    await condemned(admin, "gone")
    answer = await page(admin, "no", "a/b", "gone", "no")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("gone", UNKNOWN),
        ("no", UNKNOWN),
    ]
    assert {topic.topic_authorized_operations for topic in answer.topics} == {0b1101_1111_1000}
    assert await admin.store.read("no") is None


async def test_a_cursor_whose_topic_is_gone_goes_on_with_the_next_one(admin: Admin) -> None:
    await admin.register(1)
    for name in ("a", "c"):
        await created(admin, name, 2)
    assert shown(await page(admin, cursor=("b", 1))) == [("c", [0, 1])]
    assert shown(await page(admin, cursor=("c", 9))) == [("c", [])]


@pytest.mark.parametrize("names", [(), ("t",)])
async def test_a_cursor_below_the_first_partition_is_refused(admin: Admin, names: tuple[str, ...]) -> None:
    answer = await page(admin, *names, cursor=("t", -1))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
async def test_a_limit_that_allows_nothing_allows_one(admin: Admin, limit: int) -> None:
    await admin.register(1)
    await created(admin, "t", 3)
    answer = await page(admin, limit=limit)
    assert shown(answer) == [("t", [0])]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 1)


async def test_no_answer_has_more_partitions_than_kafkas(admin: Admin) -> None:
    await admin.register(1)
    await created(admin, "t", 2_001)
    answer = await page(admin, "t", limit=2**31 - 1)
    assert len(answer.topics[0].partitions) == 2_000
    assert answer.next_cursor.partition_index == 2_000


async def test_without_a_front_door_no_partition_has_a_leader(admin: Admin) -> None:
    await created(admin, "t")
    (described,) = (await page(admin, "t")).topics
    assert {part.error_code for part in described.partitions} == {ErrorCode.LEADER_NOT_AVAILABLE}


# --- ElectLeaders ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_an_election_is_never_needed(admin: Admin, version: int) -> None:
    await created(admin, "t", 2)
    wanted = [
        elect_schema.ElectLeadersRequestTopicPartitions(topic="t", partitions=[0, 1, 2, -1]),
        elect_schema.ElectLeadersRequestTopicPartitions(topic="no", partitions=[0]),
    ]
    request = elect_schema.ElectLeadersRequest(topic_partitions=wanted)
    answer = await admin.ask(elect_leaders, elect_schema, request, version)
    assert answer.error_code == 0
    assert [
        (result.topic, part.partition_id, part.error_code)
        for result in answer.replica_election_results
        for part in result.partition_result
    ] == [
        ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 2, UNKNOWN),
        ("t", -1, UNKNOWN),
        ("no", 0, UNKNOWN),
    ]


async def test_of_all_partitions_those_that_need_no_election_are_not_named(admin: Admin) -> None:
    await created(admin, "t")
    request = elect_schema.ElectLeadersRequest(election_type=1, topic_partitions=None)
    answer = await admin.ask(elect_leaders, elect_schema, request, 2)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


async def test_an_election_that_is_asked_for_twice_is_answered_once(admin: Admin) -> None:
    await created(admin, "t", 2)
    twice = elect_schema.ElectLeadersRequestTopicPartitions(topic="t", partitions=[1, 0, 1])
    request = elect_schema.ElectLeadersRequest(topic_partitions=[twice, twice])
    (result,) = (await admin.ask(elect_leaders, elect_schema, request, 2)).replica_election_results
    assert [part.partition_id for part in result.partition_result] == [1, 0]


async def test_answers_that_would_be_too_large_are_refused_before_they_are_built(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"answer_bytes_max": 1 << 20})) as admin:
        many = elect_schema.ElectLeadersRequestTopicPartitions(topic="t", partitions=list(range(20_000)))
        elections = elect_schema.ElectLeadersRequest(topic_partitions=[many])
        elected = await admin.ask(elect_leaders, elect_schema, elections, 2)
        assert (elected.error_code, elected.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
        for n in range(5):
            await admin.store.create(NewTopic(name=f"t{n}", partitions=10_000), now_ms=1)
        all_of_them = dirs_schema.DescribeLogDirsRequest(topics=None)
        dirs = await admin.ask(describe_log_dirs, dirs_schema, all_of_them, 4)
        assert (dirs.error_code, dirs.results) == (ErrorCode.INVALID_REQUEST, [])


async def test_an_election_of_an_unknown_type_is_refused(admin: Admin) -> None:
    request = elect_schema.ElectLeadersRequest(election_type=2, topic_partitions=None)
    answer = await admin.ask(elect_leaders, elect_schema, request, 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- ListConfigResources -----------------------------------------------------------------------


async def listed(admin: Admin, *kinds: int, version: int = 1) -> Any:
    request = list_schema.ListConfigResourcesRequest(resource_types=list(kinds))
    return await admin.ask(list_config_resources, list_schema, request, version)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), [(2, "a"), (2, "b"), (4, "1"), (4, "3")]),
        ((2,), [(2, "a"), (2, "b")]),
        ((4, 8), [(4, "1"), (4, "3")]),
        ((8, 16, 32), []),
    ],
)
async def test_topics_and_brokers_are_listed(
    admin: Admin, kinds: tuple[int, ...], expected: list[tuple[int, str]]
) -> None:
    await admin.register(3)
    await admin.register(1)
    for name in ("b", "a"):
        await created(admin, name)
    await condemned(admin, "c")
    answer = await listed(admin, *kinds)
    assert answer.error_code == 0
    assert [(found.resource_type, found.resource_name) for found in answer.config_resources] == expected


async def test_the_first_version_lists_client_metrics_and_there_are_none(admin: Admin) -> None:
    await created(admin, "t")
    answer = await listed(admin, version=0)
    assert (answer.error_code, answer.config_resources) == (0, [])


async def test_resources_of_a_type_that_nobody_knows_are_refused(admin: Admin) -> None:
    assert (await listed(admin, 2, 3)).error_code == ErrorCode.UNSUPPORTED_VERSION


# --- what is not there -------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [None, [], ["t", "no-such-topic"]])
async def test_no_partition_is_on_its_way_to_other_replicas(admin: Admin, topics: list[str] | None) -> None:
    await created(admin, "t")
    named = topics and [
        reassign_schema.ListPartitionReassignmentsRequestTopics(name=name, partition_indexes=[0, 9])
        for name in topics
    ]
    request = reassign_schema.ListPartitionReassignmentsRequest(topics=named)
    answer = await admin.ask(list_partition_reassignments, reassign_schema, request, 0)
    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_without_an_authorizer_security_is_disabled(admin: Admin, version: int) -> None:
    """In the words of a Kafka broker without one."""
    disabled = ErrorCode.SECURITY_DISABLED
    asked = acls_schema.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    answer = await admin.ask(describe_acls, acls_schema, asked, version)
    assert (answer.error_code, answer.resources) == (disabled, [])
    assert answer.error_message == "No Authorizer is configured on the broker"
    creation = create_acls_schema.CreateAclsRequestAclCreation(resource_type=2, resource_name="t")
    creations = create_acls_schema.CreateAclsRequest(creations=[creation, creation])
    made = (await admin.ask(create_acls, create_acls_schema, creations, version)).results
    assert [each.error_code for each in made] == [disabled, disabled]
    filters = delete_acls_schema.DeleteAclsRequest(filters=[delete_acls_schema.DeleteAclsRequestFilter()])
    gone = (await admin.ask(delete_acls, delete_acls_schema, filters, version)).filter_results
    assert [(each.error_code, each.matching_acls) for each in gone] == [(disabled, [])]
    assert {each.error_message for each in (*made, *gone)} == {"No Authorizer is configured."}


# --- DescribeClientQuotas ----------------------------------------------------------------------


def matching(*components: tuple[str, int, str | None]) -> quotas_schema.DescribeClientQuotasRequest:
    """A filter: for each component its entity type, match type and match."""
    return quotas_schema.DescribeClientQuotasRequest(
        components=[quotas_schema.DescribeClientQuotasRequestComponent(*each) for each in components]
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "components", [(), (("user", 0, "alice"), ("client-id", 1, None)), (("ip", 2, None),)], ids=len
)
async def test_no_quota_is_set(
    admin: Admin, version: int, components: tuple[tuple[str, int, str | None], ...]
) -> None:
    answer = await admin.ask(describe_client_quotas, quotas_schema, matching(*components), version)
    assert (answer.error_code, answer.error_message, answer.entries) == (0, "", [])


@pytest.mark.parametrize(
    ("components", "why"),
    [
        ([("", 2, None)], "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 0, "b")],
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("user", 0, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], "Unknown match type 3"),
        ([("ip", 2, None), ("client-id", 2, None)], "Invalid entity filter component combination; "),
    ],
)
async def test_a_filter_of_quotas_that_kafka_refuses_is_refused_in_its_words(
    admin: Admin, components: list[tuple[str, int, str | None]], why: str
) -> None:
    answer = await admin.ask(describe_client_quotas, quotas_schema, matching(*components), 1)
    assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)
    assert answer.error_message.startswith(why)

"""Every API that is served has its row, and each row asks what Kafka asks."""

from __future__ import annotations

import pytest
from kafscale.access.acl import AclBinding
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import Authorizer, Rights
from kafscale.access.principals import user
from kafscale.access.rules import ROWS, Denial, Need, NotEnforced, Side, When, check_enforced, needs_of
from kafscale.frontdoor.apis import SERVED
from kafscale.testkit.acls import acl
from kafscale.wire.apis import ApiKey

K = ApiKey
TO_COME = {
    *(K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE, K.DESCRIBE_ACLS, K.CREATE_ACLS, K.DELETE_ACLS),
    *(K.DESCRIBE_CLIENT_QUOTAS, K.ALTER_CLIENT_QUOTAS),
    *(K.DESCRIBE_USER_SCRAM_CREDENTIALS, K.ALTER_USER_SCRAM_CREDENTIALS),
}
"""The APIs that the design adds to those that are served."""


def test_every_api_that_is_served_has_a_row_and_no_other_one_has() -> None:
    assert set(ROWS) == {ApiKey(key) for key in SERVED} | TO_COME


EXPECTED = """
  0 Produce: TRANSACTIONAL_ID ? WRITE TRANSACTIONAL_ID : 53 F; WRITE TOPIC : 29 F
  1 Fetch: CLIENT ? READ TOPIC : 29 S; REPLICA ? CLUSTER_ACTION CLUSTER : 29 S
  2 ListOffsets: DESCRIBE TOPIC : 29 S
  3 Metadata: NAMED ? DESCRIBE TOPIC : 29 S; BY_ID ? DESCRIBE TOPIC : 29 S; ALL ? DESCRIBE TOPIC : 29 S; CREATION ? CREATE CLUSTER or CREATE TOPIC : 29 S
  8 OffsetCommit: READ GROUP : 30 F; READ TOPIC : 29 S
  9 OffsetFetch: DESCRIBE GROUP : 30 F; NAMED ? DESCRIBE TOPIC : 29 S; ALL ? DESCRIBE TOPIC : 29 S
 10 FindCoordinator: GROUP_KEY ? DESCRIBE GROUP : 30 F; TRANSACTION_KEY ? DESCRIBE TRANSACTIONAL_ID : 53 F
 11 JoinGroup: READ GROUP : 30 F
 12 Heartbeat: READ GROUP : 30 F
 13 LeaveGroup: READ GROUP : 30 F
 14 SyncGroup: READ GROUP : 30 F
 15 DescribeGroups: DESCRIBE GROUP : 30 F
 16 ListGroups: DESCRIBE CLUSTER or DESCRIBE GROUP : 30 F
 17 SaslHandshake:
 18 ApiVersions:
 19 CreateTopics: CREATE CLUSTER or CREATE TOPIC : 29 S; DESCRIBE_CONFIGS TOPIC : 29 S
 20 DeleteTopics: BY_ID ? DELETE CLUSTER or DESCRIBE TOPIC : 29 S; DELETE CLUSTER or DELETE TOPIC : 29 S
 21 DeleteRecords: DELETE TOPIC : 29 S
 22 InitProducerId: TRANSACTIONAL_ID ? WRITE TRANSACTIONAL_ID : 53 F; TWO_PHASE_COMMIT ? TWO_PHASE_COMMIT TRANSACTIONAL_ID : 53 F; NO_TRANSACTIONAL_ID ? IDEMPOTENT_WRITE CLUSTER or WRITE any TOPIC : 31 F
 23 OffsetForLeaderEpoch: CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC : 29 S
 24 AddPartitionsToTxn: OF_CLIENT ? WRITE TRANSACTIONAL_ID : 53 F; OF_BROKER ? CLUSTER_ACTION CLUSTER : 31 F; OF_CLIENT ? WRITE TOPIC : 29 S
 25 AddOffsetsToTxn: WRITE TRANSACTIONAL_ID : 53 F; READ GROUP : 30 F
 26 EndTxn: WRITE TRANSACTIONAL_ID : 53 F
 27 WriteTxnMarkers: ALTER CLUSTER or CLUSTER_ACTION CLUSTER : 31 F
 28 TxnOffsetCommit: WRITE TRANSACTIONAL_ID : 53 F; READ GROUP : 30 F; READ TOPIC : 29 S
 29 DescribeAcls: DESCRIBE CLUSTER : 31 F
 30 CreateAcls: ALTER CLUSTER : 31 F
 31 DeleteAcls: ALTER CLUSTER : 31 F
 32 DescribeConfigs: TOPIC_CONFIGS ? DESCRIBE_CONFIGS TOPIC : 29 S; GROUP_CONFIGS ? DESCRIBE_CONFIGS GROUP : 30 S; CLUSTER_CONFIGS ? DESCRIBE_CONFIGS CLUSTER : 31 S
 33 AlterConfigs: TOPIC_CONFIGS ? ALTER_CONFIGS TOPIC : 29 S; GROUP_CONFIGS ? ALTER_CONFIGS GROUP : 30 S; CLUSTER_CONFIGS ? ALTER_CONFIGS CLUSTER : 31 S
 35 DescribeLogDirs: DESCRIBE CLUSTER : 31 F
 36 SaslAuthenticate:
 37 CreatePartitions: ALTER TOPIC : 29 S
 42 DeleteGroups: DELETE GROUP : 30 F
 43 ElectLeaders: ALTER CLUSTER : 31 F
 44 IncrementalAlterConfigs: TOPIC_CONFIGS ? ALTER_CONFIGS TOPIC : 29 S; GROUP_CONFIGS ? ALTER_CONFIGS GROUP : 30 S; CLUSTER_CONFIGS ? ALTER_CONFIGS CLUSTER : 31 S
 46 ListPartitionReassignments: DESCRIBE CLUSTER : 31 F
 47 OffsetDelete: DELETE GROUP : 30 F; READ TOPIC : 29 S
 48 DescribeClientQuotas: DESCRIBE_CONFIGS CLUSTER : 31 F
 49 AlterClientQuotas: ALTER_CONFIGS CLUSTER : 31 F
 50 DescribeUserScramCredentials: DESCRIBE CLUSTER : 31 F
 51 AlterUserScramCredentials: ALTER CLUSTER : 31 F
 60 DescribeCluster:
 61 DescribeProducers: READ TOPIC : 29 F
 65 DescribeTransactions: DESCRIBE TRANSACTIONAL_ID : 53 F; DESCRIBE TOPIC : 29 S
 66 ListTransactions: DESCRIBE TRANSACTIONAL_ID : 53 F
 68 ConsumerGroupHeartbeat: READ GROUP : 30 F; NAMED ? DESCRIBE TOPIC : 29 S; EXPRESSION ? DESCRIBE TOPIC : 29 S
 69 ConsumerGroupDescribe: DESCRIBE GROUP : 30 F; DESCRIBE TOPIC : 29 S
 74 ListConfigResources: DESCRIBE_CONFIGS CLUSTER : 31 F
 75 DescribeTopicPartitions: NAMED ? DESCRIBE TOPIC : 29 S; ALL ? DESCRIBE TOPIC : 29 S
"""  # noqa: E501
"""Section 5 of the design, as text: case ? rights : code and side."""


def shown(need: Need) -> str:
    when = "" if need.when is When.ALWAYS else f"{need.when.name} ? "
    rights = " or ".join(
        f"{right.operation.name} {'any ' * right.any_name}{right.resource_type.name}" for right in need.any_of
    )
    return f"{when}{rights} : {need.code} {need.side.value}"


@pytest.mark.parametrize(
    "line", EXPECTED.strip("\n").splitlines(), ids=lambda line: line.split(":")[0].strip()
)
def test_the_rows_are_those_of_the_design(line: str) -> None:
    head, _, needs = line.partition(":")
    key = ApiKey(int(head.split()[0]))
    assert key.name.replace("_", "") == head.split()[1].upper()
    assert "; ".join(map(shown, needs_of(key))) == needs.strip()


def test_the_table_of_this_test_has_every_row() -> None:
    assert [int(line.split()[0]) for line in EXPECTED.strip("\n").splitlines()] == [int(key) for key in ROWS]


def test_the_front_door_decides_before_the_service() -> None:
    for needs in ROWS.values():
        sides = [need.side for need in needs]
        assert sides == sorted(sides, key=[Side.FRONT_DOOR, Side.SERVICE].index)


def test_what_a_side_decides_can_be_asked_alone() -> None:
    assert [need.code for need in needs_of(K.OFFSET_COMMIT, Side.FRONT_DOOR)] == [30]
    assert [need.code for need in needs_of(K.OFFSET_COMMIT, Side.SERVICE)] == [29]
    with pytest.raises(KeyError):
        needs_of(K.LEADER_AND_ISR)


def test_an_api_whose_needs_are_all_asked_may_be_served() -> None:
    asked = {int(K.OFFSET_COMMIT): needs_of(K.OFFSET_COMMIT, Side.SERVICE)}
    check_enforced([K.OFFSET_COMMIT, K.HEARTBEAT], asked, Side.SERVICE)


@pytest.mark.parametrize(
    ("served", "asked", "why"),
    [
        (K.LEADER_AND_ISR, {}, "LeaderAndIsr has no row"),
        (9_999, {}, "has no row"),
        (K.OFFSET_COMMIT, {}, "OffsetCommit does not ask"),
        (K.METADATA, {int(K.METADATA): needs_of(K.METADATA)[:-1]}, "Metadata does not ask .*CREATION"),
        (K.METADATA, {int(K.CREATE_TOPICS): needs_of(K.METADATA)}, "Metadata does not ask"),
    ],
)
def test_an_api_without_a_row_or_whose_needs_are_not_all_asked_must_not_be_served(
    served: int, asked: dict[int, tuple[Need, ...]], why: str
) -> None:
    with pytest.raises(NotEnforced, match=why):
        check_enforced([served], asked, Side.SERVICE)


DENIALS = {
    Denial.HIDES_NAME: {K.METADATA, K.DELETE_TOPICS},
    Denial.HIDES_CONFIGS: {K.CREATE_TOPICS},
    Denial.HIDES_MEMBERS: {K.CONSUMER_GROUP_DESCRIBE},
    Denial.LEFT_OUT: {
        *(K.METADATA, K.OFFSET_FETCH, K.LIST_GROUPS, K.DESCRIBE_TOPIC_PARTITIONS),
        *(K.CONSUMER_GROUP_HEARTBEAT, K.DESCRIBE_TRANSACTIONS, K.LIST_TRANSACTIONS),
    },
}


@pytest.mark.parametrize("denial", DENIALS)
def test_only_these_apis_hide_something(denial: Denial) -> None:
    assert {key for key, needs in ROWS.items() if any(need.denial is denial for need in needs)} == DENIALS[
        denial
    ]


def rights(*acls: AclBinding) -> Rights:
    return Authorizer(AclIndex(acls)).rights(user("alice"), "10.0.0.1")


def test_a_need_is_met_by_any_of_its_rights() -> None:
    create = needs_of(K.CREATE_TOPICS)[0]
    assert not create.met(rights(), "orders")
    assert create.met(rights(acl("TOPIC:PREFIXED:or CREATE")), "orders")
    assert create.met(rights(acl("CLUSTER:LITERAL:kafka-cluster CREATE")), "orders")
    assert not create.met(rights(acl("TOPIC:LITERAL:other CREATE")), "orders")


def test_a_producer_id_needs_any_topic_that_may_be_written() -> None:
    need = needs_of(K.INIT_PRODUCER_ID)[-1]
    assert need.met(rights(acl("TOPIC:LITERAL:orders WRITE")), "")
    assert need.met(rights(acl("CLUSTER:LITERAL:kafka-cluster IDEMPOTENT_WRITE")), "")
    assert not need.met(rights(acl("TOPIC:LITERAL:orders READ")), "")

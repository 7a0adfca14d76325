"""Requests whose whole answers are compared with those of an Apache Kafka: the ordinary ones, and mistakes.

Each is made in every version that both serve. The ordinary requests are those of the table of rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.schema import alter_client_quotas, create_acls, describe_acls, describe_client_quotas

from e2e.harness.answer_shapes import NO_SUCH, Told, changed, made, of_absent
from e2e.harness.api_requests import (
    ROWS,
    TOPIC_RESOURCE,
    acl,
    acl_filter,
    beat,
    commit,
    committed,
    configs,
    create,
    credential,
    epoch,
    fetch,
    grow,
    join,
    list_offsets,
    metadata_of,
    produce,
    quota,
)
from e2e.harness.oracles import Content
from e2e.harness.prepared import (
    World,
    member,
    offsets,
)
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.rights_rows import CASES, Case, assigned_member, ready_topic
from e2e.harness.services import until
from e2e.harness.transaction_cases import TRANSACTIONS

_K = ApiKey
ANY_ID: Final = UUID(int=7)
ACL_TYPES_FROM: Final = 1
QUOTA_KEYS: Final = (
    "request_percentage",
    "controller_mutation_rate",
    "consumer_byte_rate",
    "producer_byte_rate",
)


def quotas(raw: Raw, world: World) -> World:
    """Of a user, and of the user with a client id, with all others, and of every kind."""
    schema = alter_client_quotas
    user = schema.AlterClientQuotasRequestEntity(entity_type="user", entity_name=world.topic)
    clients = [
        schema.AlterClientQuotasRequestEntity(entity_type="client-id", entity_name=name)
        for name in (world.group, None)
    ]
    ops = [schema.AlterClientQuotasRequestOp(key=key, value=1e9) for key in QUOTA_KEYS]
    wanted = [
        schema.AlterClientQuotasRequestEntry(entity=entity, ops=ops)
        for entity in ([user], *([user, client] for client in clients))
    ]
    made = ask(raw, schema, 1, schema.AlterClientQuotasRequest(entries=wanted))
    assert {entry.error_code for entry in made.entries} == {0}, made
    component = describe_client_quotas.DescribeClientQuotasRequestComponent(
        entity_type="user", match_type=0, match=world.topic
    )
    asked = describe_client_quotas.DescribeClientQuotasRequest(components=[component])
    until(
        "the broker knows the quotas",
        lambda: len(ask(raw, describe_client_quotas, 1, asked).entries) == len(wanted),
    )
    return world


def an_acl(raw: Raw, world: World) -> World:
    creation = create_acls.CreateAclsRequestAclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name=world.topic,
        resource_pattern_type=3,
        principal="User:answers",
        host="*",
        operation=3,
        permission_type=3,
    )
    made = ask(raw, create_acls, 3, create_acls.CreateAclsRequest(creations=[creation]))
    assert made.results[0].error_code == 0
    wanted = describe_acls.DescribeAclsRequest(
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=world.topic,
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    until("the broker knows the ACL", lambda: bool(ask(raw, describe_acls, 3, wanted).resources))
    return world


def an_acl_of_a_topic(world: World, version: int) -> Content:
    pattern = {"pattern_type_filter": 3} if version >= ACL_TYPES_FROM else {}
    return {
        **acl_filter(world, version),
        **pattern,
        "resource_type_filter": TOPIC_RESOURCE,
        "resource_name_filter": world.topic,
    }


def quotas_of(*components: dict[str, object], strict: bool = False) -> Told:
    return lambda _, __: {"components": list(components), "strict": strict}


def quotas_of_the_user(world: World, _: int) -> Content:
    return {"components": [{"entity_type": "user", "match_type": 0, "match": world.topic}], "strict": False}


def resource(kind: int, name: str) -> Told:
    return changed(configs, "resources", resource_type=kind, resource_name=name)


def setting(name: str, value: str | None, operation: int = 0) -> Told:
    change = [{"name": name, "value": value, "config_operation": operation}]
    return changed(configs, "resources", configs=change)


def users(*names: str) -> Told:
    return lambda _, __: {"users": [{"name": name} for name in names]}


def scram(deletions: Sequence[dict[str, object]] = (), **fields: object) -> Told:
    return lambda world, _: {
        "deletions": list(deletions),
        "upsertions": [{**credential(world), **fields}] if fields else [],
    }


def groups(*names: str) -> Told:
    return lambda world, _: {
        "groups": [name or world.group for name in names],
        "groups_names": [name or world.group for name in names],
        "group_ids": tuple(name or world.group for name in names),
        "include_authorized_operations": True,
    }


def group_call(**fields: object) -> Told:
    call = {"group_id": NO_SUCH, "generation_id": 3, "member_id": "no-such-member", "assignments": []}
    leaver = {"member_id": "no-such-member", "group_instance_id": None, "reason": "because"}
    names = {"protocol_type": "consumer", "protocol_name": "range", "members": [leaver]}
    return lambda world, _: {**call, **names, **fields}


def of_real_group(**fields: object) -> Told:
    return lambda world, version: {**group_call(**fields)(world, version), "group_id": world.group}


def on_partitions(*topics: str, **said: object) -> Told:
    entries = [
        {"name": name, "partitions": [{"partition_index": 0, **said}], "partition_indexes": [0]}
        for name in topics
    ]
    return lambda world, _: {"group_id": world.group, "topics": entries, "timeout_ms": 1_000}


def first_beat(**fields: object) -> Told:
    return lambda world, version: {**beat(world, version), **fields}


def coordinator(name: str, kind: int) -> Told:
    return lambda _, __: {"key": name, "key_type": kind, "coordinator_keys": [name]}


def a_new_acl(**fields: object) -> Told:
    return lambda world, version: {"creations": [{**acl(world, version), **fields}]}


def described(name: str) -> Told:
    return lambda _, __: {"topics": [{"name": name}], "response_partition_limit": 10}


# -- mistakes --------------------------------------------------------------------------------------

MISTAKES: Final[Sequence[Case]] = (
    of_absent(produce, _K.PRODUCE, "Produce", "topic_data"),
    made(
        _K.PRODUCE,
        "Produce to an absent partition",
        changed(produce, "topic_data", "partition_data", index=99),
        ready_topic,
        (3, 99),
    ),
    made(_K.PRODUCE, "Produce with unknown acks", changed(produce, acks=5), ready_topic, (3, 99)),
    of_absent(fetch, _K.FETCH, "Fetch", "topics", name="topic"),
    made(_K.FETCH, "Fetch of an unknown id", changed(fetch, "topics", topic_id=ANY_ID), versions=(13, 99)),
    made(
        _K.FETCH,
        "Fetch of an absent partition",
        changed(fetch, "topics", "partitions", partition=99),
        ready_topic,
    ),
    made(
        _K.FETCH,
        "Fetch beyond the end",
        changed(fetch, "topics", "partitions", fetch_offset=99),
        ready_topic,
    ),
    of_absent(list_offsets, _K.LIST_OFFSETS, "ListOffsets", "topics"),
    made(
        _K.LIST_OFFSETS,
        "ListOffsets of an absent partition",
        changed(list_offsets, "topics", "partitions", partition_index=99),
        ready_topic,
    ),
    made(
        _K.LIST_OFFSETS,
        "ListOffsets by time",
        changed(list_offsets, "topics", "partitions", timestamp=5),
        ready_topic,
    ),
    replace(of_absent(metadata_of, _K.METADATA, "Metadata", "topics"), versions=(4, 99)),
    of_absent(metadata_of, _K.METADATA, "Metadata of an illegal name,", "topics", to="a b"),
    of_absent(metadata_of, _K.METADATA, "Metadata of an internal name,", "topics", to="__share_group_state"),
    made(
        _K.METADATA,
        "Metadata of an unknown id",
        changed(metadata_of, "topics", topic_id=ANY_ID, name=None),
        versions=(12, 99),
    ),
    of_absent(commit, _K.OFFSET_COMMIT, "OffsetCommit", "topics"),
    made(
        _K.OFFSET_COMMIT,
        "OffsetCommit of an unknown id",
        changed(commit, "topics", topic_id=ANY_ID),
        versions=(10, 99),
    ),
    made(
        _K.OFFSET_COMMIT,
        "OffsetCommit of an unknown member",
        changed(commit, generation_id_or_member_epoch=7, member_id="no-such-member"),
        offsets,
        (1, 99),
    ),
    made(_K.OFFSET_FETCH, "OffsetFetch of an absent group", committed, ready_topic),
    made(
        _K.OFFSET_FETCH,
        "OffsetFetch of an absent topic",
        changed(
            committed, "groups", topics=[{"name": NO_SUCH, "topic_id": ANY_ID, "partition_indexes": [0]}]
        ),
        offsets,
        (8, 99),
    ),
    *TRANSACTIONS,
    *(
        made(
            _K.FIND_COORDINATOR,
            f"FindCoordinator of {what}",
            coordinator(name, kind),
            versions=(1, 99),
        )
        for what, name, kind in (("an empty name", "", 0), ("an unknown type", "x", 9), ("a share", "x", 2))
    ),
    made(_K.JOIN_GROUP, "JoinGroup without a group", changed(join, group_id="")),
    made(_K.JOIN_GROUP, "JoinGroup of an unknown member", changed(join, member_id="x")),
    made(_K.JOIN_GROUP, "JoinGroup with a short session", changed(join, session_timeout_ms=1)),
    made(_K.JOIN_GROUP, "JoinGroup without protocols", changed(join, protocols=[])),
    *(
        case
        for key, name in (
            (_K.HEARTBEAT, "Heartbeat"),
            (_K.SYNC_GROUP, "SyncGroup"),
            (_K.LEAVE_GROUP, "LeaveGroup"),
        )
        for case in (
            made(key, f"{name} of an absent group", group_call()),
            made(key, f"{name} of an unknown member", of_real_group(), member),
            made(key, f"{name} without a group", group_call(group_id="")),
        )
    ),
    made(_K.DESCRIBE_GROUPS, "DescribeGroups of an absent group", groups(NO_SUCH)),
    made(
        _K.DESCRIBE_GROUPS,
        "DescribeGroups without a name",
        lambda _, __: {**groups("x")(_, 0), "groups": [""]},
    ),
    made(_K.DESCRIBE_GROUPS, "DescribeGroups of a KIP-848 group", groups(""), assigned_member),
    made(
        _K.LIST_GROUPS,
        "ListGroups of unknown types",
        lambda _, __: {"states_filter": ["x"], "types_filter": ["y"]},
        versions=(4, 99),
    ),
    *(
        made(_K.CREATE_TOPICS, f"CreateTopics {what}", changed(create, "topics", **fields), versions=versions)
        for what, fields, versions in (
            ("with an illegal name", {"name": "a b"}, (0, 99)),
            ("without a name", {"name": ""}, (0, 99)),
            ("without partitions", {"num_partitions": 0}, (0, 99)),
            ("without replicas", {"replication_factor": 0}, (0, 99)),
            ("with defaults", {"num_partitions": -1, "replication_factor": -1, "name": "defaults"}, (4, 99)),
            ("with an unknown config", {"configs": [{"name": "no.such", "value": "1"}]}, (0, 99)),
            ("with a bad value", {"configs": [{"name": "retention.ms", "value": "x"}]}, (0, 99)),
            ("with a null value", {"configs": [{"name": "retention.ms", "value": None}]}, (0, 99)),
        )
    ),
    made(_K.CREATE_TOPICS, "CreateTopics of one that is there", create, ready_topic),
    made(
        _K.CREATE_TOPICS,
        "CreateTopics of one twice",
        lambda world, version: {**create(world, version), "topics": create(world, version)["topics"] * 2},
    ),
    made(
        _K.DELETE_TOPICS,
        "DeleteTopics of an absent topic",
        lambda _, __: {
            "topics": [{"name": NO_SUCH, "topic_id": UUID(int=0)}],
            "topic_names": [NO_SUCH],
            "timeout_ms": 1_000,
        },
    ),
    made(
        _K.DELETE_TOPICS,
        "DeleteTopics of an unknown id",
        lambda _, __: {"topics": [{"name": None, "topic_id": ANY_ID}], "timeout_ms": 1_000},
        versions=(6, 99),
    ),
    made(_K.DELETE_RECORDS, "DeleteRecords of an absent topic", on_partitions(NO_SUCH, offset=0)),
    made(
        _K.DELETE_RECORDS,
        "DeleteRecords beyond the end",
        lambda world, version: on_partitions(world.topic, offset=99)(world, version),
        ready_topic,
    ),
    of_absent(epoch, _K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", "topics", name="topic"),
    made(_K.DESCRIBE_ACLS, "DescribeAcls of a topic", an_acl_of_a_topic, an_acl),
    made(_K.DESCRIBE_ACLS, "DescribeAcls of no topic", an_acl_of_a_topic),
    made(_K.DESCRIBE_ACLS, "DescribeAcls of an unknown type", changed(acl_filter, resource_type_filter=0)),
    made(_K.DESCRIBE_ACLS, "DescribeAcls of an unknown operation", changed(acl_filter, operation=0)),
    *(
        made(
            _K.CREATE_ACLS,
            f"CreateAcls {what}",
            a_new_acl(**fields),
        )
        for what, fields in (
            ("of an unknown type", {"resource_type": 0}),
            ("of any operation", {"operation": 1}),
            ("of a bad principal", {"principal": "nobody"}),
            ("without a name", {"resource_name": ""}),
            ("of a wrong cluster", {"resource_type": 4, "resource_name": "x"}),
        )
    ),
    made(
        _K.DELETE_ACLS,
        "DeleteAcls of a topic",
        lambda world, version: {"filters": [an_acl_of_a_topic(world, version)]},
        an_acl,
    ),
    made(
        _K.DELETE_ACLS,
        "DeleteAcls of no topic",
        lambda world, version: {"filters": [an_acl_of_a_topic(world, version)]},
    ),
    made(
        _K.DELETE_ACLS,
        "DeleteAcls of an unknown type",
        lambda world, version: {"filters": [{**acl_filter(world, version), "resource_type_filter": 0}]},
    ),
    *(
        made(key, f"{name} of {what}", resource(kind, of))
        for key, name in (
            (_K.DESCRIBE_CONFIGS, "DescribeConfigs"),
            (_K.ALTER_CONFIGS, "AlterConfigs"),
            (_K.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs"),
        )
        for what, kind, of in (
            ("an absent topic", 2, NO_SUCH),
            ("an unknown type", 77, "x"),
            ("a group without a name", 32, ""),
        )
    ),
    *(
        made(key, f"{name} {what}", setting(*change), ready_topic)
        for key, name in (
            (_K.ALTER_CONFIGS, "AlterConfigs"),
            (_K.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs"),
        )
        for what, change in (
            ("of an unknown key", ("no.such", "1")),
            ("to a bad value", ("retention.ms", "x")),
        )
    ),
    made(
        _K.INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs that appends to a number",
        setting("retention.ms", "1", 2),
        ready_topic,
    ),
    made(
        _K.DESCRIBE_LOG_DIRS,
        "DescribeLogDirs of an absent topic",
        lambda _, version: {"topics": [{"topic": NO_SUCH, "partitions": [0]}]},
        versions=(1, 99),
    ),
    of_absent(grow, _K.CREATE_PARTITIONS, "CreatePartitions", "topics"),
    made(_K.CREATE_PARTITIONS, "CreatePartitions to fewer", changed(grow, "topics", count=0), ready_topic),
    made(_K.CREATE_PARTITIONS, "CreatePartitions to as many", changed(grow, "topics", count=1), ready_topic),
    made(_K.DELETE_GROUPS, "DeleteGroups of an absent group", groups(NO_SUCH)),
    made(_K.DELETE_GROUPS, "DeleteGroups of a group with members", groups(""), member),
    made(_K.DELETE_GROUPS, "DeleteGroups of a KIP-848 group", groups(""), assigned_member),
    made(
        _K.ELECT_LEADERS,
        "ElectLeaders of an absent topic",
        lambda _, __: {
            "election_type": 0,
            "topic_partitions": [{"topic": NO_SUCH, "partitions": [0]}],
            "timeout_ms": 1_000,
        },
    ),
    made(
        _K.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments of an absent topic",
        on_partitions(NO_SUCH),
    ),
    made(
        _K.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments of all",
        lambda _, __: {"timeout_ms": 1_000, "topics": None},
    ),
    made(_K.OFFSET_DELETE, "OffsetDelete of an absent group", on_partitions(NO_SUCH)),
    made(_K.OFFSET_DELETE, "OffsetDelete of an absent topic", on_partitions(NO_SUCH), offsets),
    made(_K.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas of a user", quotas_of_the_user, quotas),
    made(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of an unknown entity",
        quotas_of({"entity_type": "x", "match_type": 2, "match": None}),
    ),
    made(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas with an unknown match",
        quotas_of({"entity_type": "user", "match_type": 9, "match": None}),
    ),
    made(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of an entity twice",
        quotas_of(*({"entity_type": "user", "match_type": 2, "match": None},) * 2),
    ),
    made(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of none",
        quotas_of({"entity_type": "user", "match_type": 0, "match": NO_SUCH}),
    ),
    *(
        made(_K.ALTER_CLIENT_QUOTAS, f"AlterClientQuotas {what}", changed(quota, "entries", **fields))
        for what, fields in (
            ("of an unknown key", {"ops": [{"key": "no_such", "value": 1.0, "remove": False}]}),
            ("of an unknown entity", {"entity": [{"entity_type": "x", "entity_name": "y"}]}),
            ("of no entity", {"entity": []}),
            ("of an empty name", {"entity": [{"entity_type": "user", "entity_name": ""}]}),
            ("to a negative value", {"ops": [{"key": "producer_byte_rate", "value": -1.0, "remove": False}]}),
        )
    ),
    made(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials of nobody", users(NO_SUCH)),
    made(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials of one twice",
        users(NO_SUCH, NO_SUCH),
    ),
    made(
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials that deletes nothing",
        scram([{"name": NO_SUCH, "mechanism": 1}]),
    ),
    *(
        made(_K.ALTER_USER_SCRAM_CREDENTIALS, f"AlterUserScramCredentials {what}", scram(**fields))
        for what, fields in (
            ("with few iterations", {"iterations": 1}),
            ("with many iterations", {"iterations": 99_999}),
            ("of an unknown mechanism", {"mechanism": 9}),
            ("without a name", {"name": ""}),
        )
    ),
    made(
        _K.DESCRIBE_CLUSTER,
        "DescribeCluster of the controllers",
        lambda _, __: {"include_cluster_authorized_operations": False, "endpoint_type": 2},
        versions=(1, 99),
    ),
    made(_K.DESCRIBE_PRODUCERS, "DescribeProducers of an absent topic", on_partitions(NO_SUCH)),
    made(_K.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat without a group", first_beat(group_id="")),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of an unknown member",
        first_beat(member_id="x", member_epoch=5, subscribed_topic_names=None, topic_partitions=None),
        assigned_member,
    ),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of an absent group",
        first_beat(member_id="x", member_epoch=5, subscribed_topic_names=None, topic_partitions=None),
    ),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat without topics",
        first_beat(member_id="x", subscribed_topic_names=None),
    ),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat with an unknown assignor",
        first_beat(member_id="x", server_assignor="no-such"),
    ),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat without a rebalance timeout",
        first_beat(member_id="x", rebalance_timeout=timedelta(milliseconds=-1)),
    ),
    made(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of a classic group",
        first_beat(member_id="x"),
        member,
    ),
    made(_K.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe of an absent group", groups(NO_SUCH)),
    made(_K.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe of a classic group", groups(""), member),
    made(
        _K.CONSUMER_GROUP_DESCRIBE,
        "ConsumerGroupDescribe without a name",
        lambda _, __: {**groups("x")(_, 0), "group_ids": ("",)},
    ),
    made(
        _K.LIST_CONFIG_RESOURCES,
        "ListConfigResources of an unknown type",
        lambda _, __: {"resource_types": [77]},
        versions=(1, 99),
    ),
    *(
        made(
            _K.DESCRIBE_TOPIC_PARTITIONS,
            f"DescribeTopicPartitions of {what}",
            described(name),
        )
        for what, name in (("an absent topic", NO_SUCH), ("an illegal name", "a b"), ("no name", ""))
    ),
)

LOGINS: Final = tuple(
    made(key, f"{api_label(key)} without logins", ROWS[key].content)
    for key in (_K.SASL_HANDSHAKE, _K.SASL_AUTHENTICATE)
)
ALL: Final = (*CASES, *MISTAKES, *LOGINS)

_CLOSED = "Apache Kafka closes the connection, because its parser throws; here the answer says what is wrong"
DIFFERENT: Final = {
    "Produce of an absent topic": "Apache Kafka lists versions 0 to 2, and closes the connection of each request",
    "DescribeConfigs of a broker": "each has its own settings",
    "Fetch beyond the end": "the answer also says where the log begins and ends",
    "CreateAcls of any operation": "Apache Kafka answers UNKNOWN_SERVER_ERROR; here the answer says what is wrong",
    "DescribeTopicPartitions of no name": "as CreateAcls of any operation",
    "ListTransactions of long transactions": "Apache Kafka lists ids without a transaction too, as if it began in 1970",
    "DescribeAcls of an unknown type": _CLOSED,
    "DescribeAcls of an unknown operation": _CLOSED,
    "CreateAcls of an unknown type": _CLOSED,
    "DeleteAcls of an unknown type": _CLOSED,
}
"""Further labels of cases whose answers differ on purpose, and why."""
BY_CHANCE: Final = {"ConsumerGroupHeartbeat with an expression"}
"""These differ unless our coordinator has not yet heard of the new topic when the request comes."""
SAME: Final = {"DescribeUserScramCredentials", "AlterConfigs of a logger"}
"""In the table of rights these differ, in what denied users see."""

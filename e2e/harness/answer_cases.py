"""Requests whose whole answers are compared with those of an Apache Kafka: the ordinary ones, and mistakes.

Each is made in every version that both serve. The ordinary requests are those of the table of rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.schema import alter_client_quotas, create_acls, describe_acls, describe_client_quotas

from e2e.harness.api_requests import (
    ROWS,
    TOPIC_RESOURCE,
    acl,
    acl_filter,
    beat,
    commit,
    commit_in_transaction,
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
    Prepare,
    World,
    coordinated_transaction,
    member,
    nothing,
    offsets,
    transaction,
    transaction_with_group,
)
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.rights_rows import CASES, Case, assigned_member, ready_topic
from e2e.harness.services import until

_K = ApiKey
NO_SUCH: Final = "no-such-name"
ANY_ID: Final = UUID(int=7)
ACL_TYPES_FROM: Final = 1
QUOTA_KEYS: Final = (
    "request_percentage",
    "controller_mutation_rate",
    "consumer_byte_rate",
    "producer_byte_rate",
)
Told = Callable[[World, int], Content]


def _changed(said: Told, *path: str | int, **fields: object) -> Told:
    """The request with other fields, in itself or in the one entry of the lists that `path` names."""

    def inside(value: Any, names: Sequence[str | int]) -> Any:
        if not names:
            return {**value, **fields}
        (entry,) = value[names[0]]
        return {**value, names[0]: [inside(entry, names[1:])]}

    return lambda world, version: inside(said(world, version), path)


def _case(
    key: ApiKey, label: str, content: Told, prepare: Prepare = nothing, versions: tuple[int, int] = (0, 99)
) -> Case:
    return Case(key=key, label=label, content=content, prepare=prepare, versions=versions)


def _absent(said: Told, key: ApiKey, what: str, *path: str, name: str = "name", to: str = NO_SUCH) -> Case:
    return _case(key, f"{what} of an absent topic", _changed(said, *path, **{name: to}))


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
    return _changed(configs, "resources", resource_type=kind, resource_name=name)


def setting(name: str, value: str | None, operation: int = 0) -> Told:
    change = [{"name": name, "value": value, "config_operation": operation}]
    return _changed(configs, "resources", configs=change)


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


# -- mistakes in transactions ----------------------------------------------------------------------


def described_ids(*names: str) -> Told:
    return lambda _, __: {"transactional_ids": names}


def init(**fields: object) -> Told:
    said = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return lambda world, _: {"transactional_id": world.group, **said, **fields}


def in_transaction(said: Told, **fields: object) -> Told:
    """With these fields in place of the producer's, wherever the request has them."""

    def changed(world: World, version: int) -> Content:
        asked = dict(said(world, version))
        for entry in (asked, *asked.get("transactions", ())):
            for name, value in fields.items():
                for each in (name, f"v3_and_below_{name}"):
                    if each in entry:
                        entry[each] = value
        return asked

    return changed


WRONG_PRODUCERS: Final[Mapping[str, Mapping[str, object]]] = {
    "an unknown id": {"transactional_id": NO_SUCH},
    "another producer id": {"producer_id": 2**40},
    "a later epoch": {"producer_epoch": 7},
    "no epoch": {"producer_epoch": -1},
}
TRANSACTIONS: Final[Sequence[Case]] = (
    *(
        _case(
            _K.INIT_PRODUCER_ID, f"InitProducerId with {what}", init(**fields), coordinated_transaction, seen
        )
        for what, fields, seen in (
            ("an empty id", {"transactional_id": ""}, (0, 99)),
            ("no timeout", {"transaction_timeout_ms": 0}, (0, 99)),
            ("a long timeout", {"transaction_timeout_ms": 900_001}, (0, 99)),
            ("half a producer", {"producer_id": 5}, (3, 99)),
            ("an unknown producer", {"producer_id": 2**40, "producer_epoch": 3}, (3, 99)),
        )
    ),
    *(
        _case(
            key,
            f"{api_label(key)} with {what}",
            in_transaction(ROWS[key].content, **fields),
            ROWS[key].prepare,
        )
        for key in (_K.ADD_PARTITIONS_TO_TXN, _K.ADD_OFFSETS_TO_TXN, _K.END_TXN, _K.TXN_OFFSET_COMMIT)
        for what, fields in WRONG_PRODUCERS.items()
    ),
    *(
        _case(
            _K.END_TXN,
            f"EndTxn that {what} nothing",
            in_transaction(ROWS[_K.END_TXN].content, committed=committed),
            transaction,
        )
        for what, committed in (("commits", True), ("aborts", False))
    ),
    _case(
        _K.TXN_OFFSET_COMMIT,
        "TxnOffsetCommit of a group that did not join",
        ROWS[_K.TXN_OFFSET_COMMIT].content,
        transaction,
    ),
    _case(
        _K.TXN_OFFSET_COMMIT,
        "TxnOffsetCommit of an unknown member",
        _changed(commit_in_transaction, generation_id=7, member_id="no-such-member"),
        transaction_with_group,
        (3, 99),
    ),
    _absent(commit_in_transaction, _K.TXN_OFFSET_COMMIT, "TxnOffsetCommit", "topics"),
    _case(
        _K.ADD_OFFSETS_TO_TXN,
        "AddOffsetsToTxn of a group without a name",
        in_transaction(ROWS[_K.ADD_OFFSETS_TO_TXN].content, group_id=""),
        transaction,
    ),
    *(
        _case(
            _K.DESCRIBE_TRANSACTIONS,
            f"DescribeTransactions of {what}",
            described_ids(*names),
        )
        for what, names in (("an unknown id", [NO_SUCH]), ("no id", []), ("an empty id", [""]))
    ),
    *(
        _case(
            _K.LIST_TRANSACTIONS,
            f"ListTransactions {what}",
            _changed(ROWS[_K.LIST_TRANSACTIONS].content, **fields),
            transaction,
            seen,
        )
        for what, fields, seen in (
            ("in an unknown state", {"state_filters": ["Dreaming"]}, (0, 99)),
            ("of no producer", {"producer_id_filters": [2**50]}, (0, 99)),
            ("of a wrong pattern", {"transactional_id_pattern": "("}, (2, 99)),
            ("of long transactions", {"duration_filter": 10_000_000}, (1, 99)),
        )
    ),
)

# -- mistakes --------------------------------------------------------------------------------------

MISTAKES: Final[Sequence[Case]] = (
    _absent(produce, _K.PRODUCE, "Produce", "topic_data"),
    _case(
        _K.PRODUCE,
        "Produce to an absent partition",
        _changed(produce, "topic_data", "partition_data", index=99),
        ready_topic,
        (3, 99),
    ),
    _case(_K.PRODUCE, "Produce with unknown acks", _changed(produce, acks=5), ready_topic, (3, 99)),
    _absent(fetch, _K.FETCH, "Fetch", "topics", name="topic"),
    _case(_K.FETCH, "Fetch of an unknown id", _changed(fetch, "topics", topic_id=ANY_ID), versions=(13, 99)),
    _case(
        _K.FETCH,
        "Fetch of an absent partition",
        _changed(fetch, "topics", "partitions", partition=99),
        ready_topic,
    ),
    _case(
        _K.FETCH,
        "Fetch beyond the end",
        _changed(fetch, "topics", "partitions", fetch_offset=99),
        ready_topic,
    ),
    _absent(list_offsets, _K.LIST_OFFSETS, "ListOffsets", "topics"),
    _case(
        _K.LIST_OFFSETS,
        "ListOffsets of an absent partition",
        _changed(list_offsets, "topics", "partitions", partition_index=99),
        ready_topic,
    ),
    _case(
        _K.LIST_OFFSETS,
        "ListOffsets by time",
        _changed(list_offsets, "topics", "partitions", timestamp=5),
        ready_topic,
    ),
    replace(_absent(metadata_of, _K.METADATA, "Metadata", "topics"), versions=(4, 99)),
    _absent(metadata_of, _K.METADATA, "Metadata of an illegal name,", "topics", to="a b"),
    _absent(metadata_of, _K.METADATA, "Metadata of an internal name,", "topics", to="__share_group_state"),
    _case(
        _K.METADATA,
        "Metadata of an unknown id",
        _changed(metadata_of, "topics", topic_id=ANY_ID, name=None),
        versions=(12, 99),
    ),
    _absent(commit, _K.OFFSET_COMMIT, "OffsetCommit", "topics"),
    _case(
        _K.OFFSET_COMMIT,
        "OffsetCommit of an unknown id",
        _changed(commit, "topics", topic_id=ANY_ID),
        versions=(10, 99),
    ),
    _case(
        _K.OFFSET_COMMIT,
        "OffsetCommit of an unknown member",
        _changed(commit, generation_id_or_member_epoch=7, member_id="no-such-member"),
        offsets,
        (1, 99),
    ),
    _case(_K.OFFSET_FETCH, "OffsetFetch of an absent group", committed, ready_topic),
    _case(
        _K.OFFSET_FETCH,
        "OffsetFetch of an absent topic",
        _changed(
            committed, "groups", topics=[{"name": NO_SUCH, "topic_id": ANY_ID, "partition_indexes": [0]}]
        ),
        offsets,
        (8, 99),
    ),
    *TRANSACTIONS,
    *(
        _case(
            _K.FIND_COORDINATOR,
            f"FindCoordinator of {what}",
            coordinator(name, kind),
            versions=(1, 99),
        )
        for what, name, kind in (("an empty name", "", 0), ("an unknown type", "x", 9), ("a share", "x", 2))
    ),
    _case(_K.JOIN_GROUP, "JoinGroup without a group", _changed(join, group_id="")),
    _case(_K.JOIN_GROUP, "JoinGroup of an unknown member", _changed(join, member_id="x")),
    _case(_K.JOIN_GROUP, "JoinGroup with a short session", _changed(join, session_timeout_ms=1)),
    _case(_K.JOIN_GROUP, "JoinGroup without protocols", _changed(join, protocols=[])),
    *(
        case
        for key, name in (
            (_K.HEARTBEAT, "Heartbeat"),
            (_K.SYNC_GROUP, "SyncGroup"),
            (_K.LEAVE_GROUP, "LeaveGroup"),
        )
        for case in (
            _case(key, f"{name} of an absent group", group_call()),
            _case(key, f"{name} of an unknown member", of_real_group(), member),
            _case(key, f"{name} without a group", group_call(group_id="")),
        )
    ),
    _case(_K.DESCRIBE_GROUPS, "DescribeGroups of an absent group", groups(NO_SUCH)),
    _case(
        _K.DESCRIBE_GROUPS,
        "DescribeGroups without a name",
        lambda _, __: {**groups("x")(_, 0), "groups": [""]},
    ),
    _case(_K.DESCRIBE_GROUPS, "DescribeGroups of a KIP-848 group", groups(""), assigned_member),
    _case(
        _K.LIST_GROUPS,
        "ListGroups of unknown types",
        lambda _, __: {"states_filter": ["x"], "types_filter": ["y"]},
        versions=(4, 99),
    ),
    *(
        _case(
            _K.CREATE_TOPICS, f"CreateTopics {what}", _changed(create, "topics", **fields), versions=versions
        )
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
    _case(_K.CREATE_TOPICS, "CreateTopics of one that is there", create, ready_topic),
    _case(
        _K.CREATE_TOPICS,
        "CreateTopics of one twice",
        lambda world, version: {**create(world, version), "topics": create(world, version)["topics"] * 2},
    ),
    _case(
        _K.DELETE_TOPICS,
        "DeleteTopics of an absent topic",
        lambda _, __: {
            "topics": [{"name": NO_SUCH, "topic_id": UUID(int=0)}],
            "topic_names": [NO_SUCH],
            "timeout_ms": 1_000,
        },
    ),
    _case(
        _K.DELETE_TOPICS,
        "DeleteTopics of an unknown id",
        lambda _, __: {"topics": [{"name": None, "topic_id": ANY_ID}], "timeout_ms": 1_000},
        versions=(6, 99),
    ),
    _case(_K.DELETE_RECORDS, "DeleteRecords of an absent topic", on_partitions(NO_SUCH, offset=0)),
    _case(
        _K.DELETE_RECORDS,
        "DeleteRecords beyond the end",
        lambda world, version: on_partitions(world.topic, offset=99)(world, version),
        ready_topic,
    ),
    _absent(epoch, _K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", "topics", name="topic"),
    _case(_K.DESCRIBE_ACLS, "DescribeAcls of a topic", an_acl_of_a_topic, an_acl),
    _case(_K.DESCRIBE_ACLS, "DescribeAcls of no topic", an_acl_of_a_topic),
    _case(_K.DESCRIBE_ACLS, "DescribeAcls of an unknown type", _changed(acl_filter, resource_type_filter=0)),
    _case(_K.DESCRIBE_ACLS, "DescribeAcls of an unknown operation", _changed(acl_filter, operation=0)),
    *(
        _case(
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
    _case(
        _K.DELETE_ACLS,
        "DeleteAcls of a topic",
        lambda world, version: {"filters": [an_acl_of_a_topic(world, version)]},
        an_acl,
    ),
    _case(
        _K.DELETE_ACLS,
        "DeleteAcls of no topic",
        lambda world, version: {"filters": [an_acl_of_a_topic(world, version)]},
    ),
    _case(
        _K.DELETE_ACLS,
        "DeleteAcls of an unknown type",
        lambda world, version: {"filters": [{**acl_filter(world, version), "resource_type_filter": 0}]},
    ),
    *(
        _case(key, f"{name} of {what}", resource(kind, of))
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
        _case(key, f"{name} {what}", setting(*change), ready_topic)
        for key, name in (
            (_K.ALTER_CONFIGS, "AlterConfigs"),
            (_K.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs"),
        )
        for what, change in (
            ("of an unknown key", ("no.such", "1")),
            ("to a bad value", ("retention.ms", "x")),
        )
    ),
    _case(
        _K.INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs that appends to a number",
        setting("retention.ms", "1", 2),
        ready_topic,
    ),
    _case(
        _K.DESCRIBE_LOG_DIRS,
        "DescribeLogDirs of an absent topic",
        lambda _, version: {"topics": [{"topic": NO_SUCH, "partitions": [0]}]},
        versions=(1, 99),
    ),
    _absent(grow, _K.CREATE_PARTITIONS, "CreatePartitions", "topics"),
    _case(_K.CREATE_PARTITIONS, "CreatePartitions to fewer", _changed(grow, "topics", count=0), ready_topic),
    _case(
        _K.CREATE_PARTITIONS, "CreatePartitions to as many", _changed(grow, "topics", count=1), ready_topic
    ),
    _case(_K.DELETE_GROUPS, "DeleteGroups of an absent group", groups(NO_SUCH)),
    _case(_K.DELETE_GROUPS, "DeleteGroups of a group with members", groups(""), member),
    _case(_K.DELETE_GROUPS, "DeleteGroups of a KIP-848 group", groups(""), assigned_member),
    _case(
        _K.ELECT_LEADERS,
        "ElectLeaders of an absent topic",
        lambda _, __: {
            "election_type": 0,
            "topic_partitions": [{"topic": NO_SUCH, "partitions": [0]}],
            "timeout_ms": 1_000,
        },
    ),
    _case(
        _K.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments of an absent topic",
        on_partitions(NO_SUCH),
    ),
    _case(
        _K.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments of all",
        lambda _, __: {"timeout_ms": 1_000, "topics": None},
    ),
    _case(_K.OFFSET_DELETE, "OffsetDelete of an absent group", on_partitions(NO_SUCH)),
    _case(_K.OFFSET_DELETE, "OffsetDelete of an absent topic", on_partitions(NO_SUCH), offsets),
    _case(_K.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas of a user", quotas_of_the_user, quotas),
    _case(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of an unknown entity",
        quotas_of({"entity_type": "x", "match_type": 2, "match": None}),
    ),
    _case(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas with an unknown match",
        quotas_of({"entity_type": "user", "match_type": 9, "match": None}),
    ),
    _case(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of an entity twice",
        quotas_of(*({"entity_type": "user", "match_type": 2, "match": None},) * 2),
    ),
    _case(
        _K.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas of none",
        quotas_of({"entity_type": "user", "match_type": 0, "match": NO_SUCH}),
    ),
    *(
        _case(_K.ALTER_CLIENT_QUOTAS, f"AlterClientQuotas {what}", _changed(quota, "entries", **fields))
        for what, fields in (
            ("of an unknown key", {"ops": [{"key": "no_such", "value": 1.0, "remove": False}]}),
            ("of an unknown entity", {"entity": [{"entity_type": "x", "entity_name": "y"}]}),
            ("of no entity", {"entity": []}),
            ("of an empty name", {"entity": [{"entity_type": "user", "entity_name": ""}]}),
            ("to a negative value", {"ops": [{"key": "producer_byte_rate", "value": -1.0, "remove": False}]}),
        )
    ),
    _case(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials of nobody", users(NO_SUCH)),
    _case(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials of one twice",
        users(NO_SUCH, NO_SUCH),
    ),
    _case(
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials that deletes nothing",
        scram([{"name": NO_SUCH, "mechanism": 1}]),
    ),
    *(
        _case(_K.ALTER_USER_SCRAM_CREDENTIALS, f"AlterUserScramCredentials {what}", scram(**fields))
        for what, fields in (
            ("with few iterations", {"iterations": 1}),
            ("with many iterations", {"iterations": 99_999}),
            ("of an unknown mechanism", {"mechanism": 9}),
            ("without a name", {"name": ""}),
        )
    ),
    _case(
        _K.DESCRIBE_CLUSTER,
        "DescribeCluster of the controllers",
        lambda _, __: {"include_cluster_authorized_operations": False, "endpoint_type": 2},
        versions=(1, 99),
    ),
    _case(_K.DESCRIBE_PRODUCERS, "DescribeProducers of an absent topic", on_partitions(NO_SUCH)),
    _case(_K.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat without a group", first_beat(group_id="")),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of an unknown member",
        first_beat(member_id="x", member_epoch=5, subscribed_topic_names=None, topic_partitions=None),
        assigned_member,
    ),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of an absent group",
        first_beat(member_id="x", member_epoch=5, subscribed_topic_names=None, topic_partitions=None),
    ),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat without topics",
        first_beat(member_id="x", subscribed_topic_names=None),
    ),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat with an unknown assignor",
        first_beat(member_id="x", server_assignor="no-such"),
    ),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat without a rebalance timeout",
        first_beat(member_id="x", rebalance_timeout=timedelta(milliseconds=-1)),
    ),
    _case(
        _K.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat of a classic group",
        first_beat(member_id="x"),
        member,
    ),
    _case(_K.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe of an absent group", groups(NO_SUCH)),
    _case(_K.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe of a classic group", groups(""), member),
    _case(
        _K.CONSUMER_GROUP_DESCRIBE,
        "ConsumerGroupDescribe without a name",
        lambda _, __: {**groups("x")(_, 0), "group_ids": ("",)},
    ),
    _case(
        _K.LIST_CONFIG_RESOURCES,
        "ListConfigResources of an unknown type",
        lambda _, __: {"resource_types": [77]},
        versions=(1, 99),
    ),
    *(
        _case(
            _K.DESCRIBE_TOPIC_PARTITIONS,
            f"DescribeTopicPartitions of {what}",
            described(name),
        )
        for what, name in (("an absent topic", NO_SUCH), ("an illegal name", "a b"), ("no name", ""))
    ),
)

LOGINS: Final = tuple(
    _case(key, f"{api_label(key)} without logins", ROWS[key].content)
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
SAME: Final = {"DescribeUserScramCredentials", "AlterConfigs of a logger"}
"""In the table of rights these differ, in what denied users see."""

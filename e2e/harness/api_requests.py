"""A request of each API that a healthy cluster answers well. `prepared.py` makes what must be there before it.

The fields are those of all versions together, under Kafka's names, for `oracles.py` to write. If you add a row to
the front door's table adds one here, else the test of the table fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from kafscale.wire.errors import ErrorCode

from e2e.harness.oracles import Content, one_record
from e2e.harness.prepared import (
    NO_ID,
    Prepare,
    World,
    consumer_member,
    member,
    nothing,
    offsets,
    open_transaction,
    topic,
    transaction,
    transaction_with_group,
)

BATCHES_FROM, TIMESTAMPS_FROM = 3, 2  # versions of Produce: before them message sets, at first without time
TOPIC_RESOURCE = 2
RETENTION = {"name": "retention.ms", "value": "600000", "config_operation": 0}


@dataclass(frozen=True, slots=True)
class Row:
    content: Callable[[World, int], Content]
    prepare: Prepare
    errors: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def expected(self, version: int) -> frozenset[int]:
        """Error codes of a good answer."""
        return self.errors.get(version, frozenset({0}))


# -- what is said ----------------------------------------------------------------------------------


def produce(world: World, version: int, acks: int = -1) -> Content:
    magic = 2 if version >= BATCHES_FROM else int(version >= TIMESTAMPS_FROM)
    partition = {"index": 0, "records": one_record(magic)}
    on = {"name": world.topic, "topic_id": world.topic_id, "partition_data": [partition]}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 10_000, "topic_data": [on]}


def fetch(world: World, _: int) -> Content:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 16,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1 << 16,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": world.topic, "topic_id": world.topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def list_offsets(world: World, _: int) -> Content:
    latest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, "max_num_offsets": 1}
    on = {"name": world.topic, "partitions": [latest]}
    return {"replica_id": -1, "isolation_level": 0, "topics": [on], "timeout_ms": 1_000}


def metadata_of(world: World, _: int) -> Content:
    return {
        "topics": [{"topic_id": NO_ID, "name": world.topic}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }


def commit(world: World, _: int) -> Content:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "commit_timestamp": -1,
        "committed_metadata": "m",
    }
    return {
        "group_id": world.group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{"name": world.topic, "topic_id": world.topic_id, "partitions": [partition]}],
    }


def committed(world: World, _: int) -> Content:
    topics = [{"name": world.topic, "topic_id": world.topic_id, "partition_indexes": [0]}]
    group = {"group_id": world.group, "member_id": None, "member_epoch": -1, "topics": topics}
    return {"group_id": world.group, "topics": topics, "groups": [group], "require_stable": True}


def join(world: World, version: int) -> Content:
    return {
        "group_id": world.group,
        "session_timeout_ms": world.session_ms,
        "rebalance_timeout_ms": 100,
        "member_id": "",
        "group_instance_id": f"static-{version}",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "reason": "because",
    }


def of_member(world: World, _: int) -> Content:
    """Heartbeat, SyncGroup and LeaveGroup, each of which takes what it knows."""
    return {"group_id": world.group, "generation_id": world.generation, "member_id": world.member_id}


def sync(world: World, version: int) -> Content:
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    return {**of_member(world, version), **names, "assignments": []}


def leave(world: World, _: int) -> Content:
    leaver = {"member_id": world.member_id, "group_instance_id": None, "reason": "because"}
    return {"group_id": world.group, "member_id": world.member_id, "members": [leaver]}


def beat(world: World, version: int) -> Content:
    """The first of a new member, whose id it makes itself from version 1 on."""
    return {
        "group_id": world.group,
        "member_id": str(UUID(int=version)) if version else "",
        "member_epoch": 0,
        "rebalance_timeout": timedelta(seconds=60),
        "subscribed_topic_names": (world.topic,),
        "topic_partitions": (),
    }


def create(world: World, _: int) -> Content:
    wanted = {
        "name": world.topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [RETENTION],
    }
    return {"topics": [wanted], "timeout_ms": 10_000, "validate_only": world.dry}


def delete(world: World, _: int) -> Content:
    doomed = {"name": world.topic, "topic_id": NO_ID}
    return {"topics": [doomed], "topic_names": [world.topic], "timeout_ms": 10_000}


def on_partition(world: World, **said: object) -> Content:
    return {"topics": [{"name": world.topic, "partitions": [{"partition_index": 0, **said}]}]}


def epoch(world: World, _: int) -> Content:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": world.topic, "partitions": [partition]}]}


def configs(world: World, _: int) -> Content:
    about = {"resource_type": TOPIC_RESOURCE, "resource_name": world.topic}
    asked = {**about, "configuration_keys": None, "configs": [RETENTION]}
    options = {"include_synonyms": True, "include_documentation": True, "validate_only": world.dry}
    return {"resources": [asked], **options}


def grow(world: World, _: int) -> Content:
    wanted = {"name": world.topic, "count": 2, "assignments": None}
    return {"topics": [wanted], "timeout_ms": 10_000, "validate_only": world.dry}


def elect(world: World, _: int) -> Content:
    partitions = [{"topic": world.topic, "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 10_000}


def directories(world: World, version: int) -> Content:
    """In version 0 of all topics: kafka-python's older codec takes a topic's partitions for one number."""
    return {"topics": [{"topic": world.topic, "partitions": [0]}] if version else None}


def acl_filter(_: World, __: int) -> Content:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def acl(world: World, _: int) -> Content:
    return {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": world.topic,
        "resource_pattern_type": 3,
        "principal": "User:oracle",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


def credential(world: World) -> Content:
    return {
        "name": world.topic,
        "mechanism": 1,
        "iterations": 4_096,
        "salt": b"salt",
        "salted_password": b"of no password",
    }


def quota(world: World, _: int) -> Content:
    """So large that it throttles nobody."""
    op = {"key": "producer_byte_rate", "value": 1e12, "remove": False}
    entity = {"entity_type": "user", "entity_name": world.topic}
    return {"entries": [{"entity": [entity], "ops": [op]}], "validate_only": world.dry}


def reassignments(world: World, _: int) -> Content:
    return {"timeout_ms": 10_000, "topics": [{"name": world.topic, "partition_indexes": [0]}]}


NO_ACLS = dict.fromkeys(range(4), frozenset({int(ErrorCode.SECURITY_DISABLED)}))
NO_LOGIN = dict.fromkeys(range(3), frozenset({int(ErrorCode.ILLEGAL_SASL_STATE)}))
NOT_NEEDED = dict.fromkeys(range(3), frozenset({0, int(ErrorCode.ELECTION_NOT_NEEDED)}))
ID_FIRST = {4: frozenset({int(ErrorCode.MEMBER_ID_REQUIRED)})}


def producer(world: World) -> Content:
    return {
        "transactional_id": world.group,
        "producer_id": world.producer_id,
        "producer_epoch": world.producer_epoch,
    }


def add_partitions(world: World, _: int) -> Content:
    topics = [{"name": world.topic, "partitions": [0]}]
    old = {f"v3_and_below_{name}": value for name, value in producer(world).items()}
    return {
        "transactions": [{**producer(world), "verify_only": False, "topics": topics}],
        **old,
        "v3_and_below_topics": topics,
    }


def aborted_by_operator(world: World, _: int) -> Content:
    """Of a producer that has nothing open in the partition."""
    marker = {
        "producer_id": world.producer_id,
        "producer_epoch": world.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": world.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


def commit_in_transaction(world: World, _: int) -> Content:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        **producer(world),
        "group_id": world.group,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": world.topic, "partitions": [partition]}],
    }


ROWS: Mapping[int, Row] = {
    0: Row(produce, topic),
    1: Row(fetch, topic),
    2: Row(list_offsets, topic),
    3: Row(metadata_of, topic),
    8: Row(commit, topic),
    9: Row(committed, offsets),
    10: Row(lambda world, _: {"key": world.group, "key_type": 0, "coordinator_keys": [world.group]}, nothing),
    11: Row(join, nothing, ID_FIRST),
    12: Row(of_member, member),
    13: Row(leave, member),
    14: Row(sync, member),
    15: Row(lambda world, _: {"groups": [world.group], "include_authorized_operations": True}, member),
    16: Row(lambda _, __: {"states_filter": [], "types_filter": []}, member),
    17: Row(lambda _, __: {"mechanism": "PLAIN"}, nothing, NO_LOGIN),
    18: Row(lambda _, __: {"client_software_name": "oracle", "client_software_version": "1"}, nothing),
    19: Row(create, nothing),
    20: Row(delete, topic),
    21: Row(lambda world, _: {**on_partition(world, offset=-1), "timeout_ms": 10_000}, topic),
    22: Row(lambda _, __: {"transactional_id": None, "transaction_timeout_ms": 1_000}, nothing),
    23: Row(epoch, topic),
    24: Row(add_partitions, transaction),
    25: Row(lambda world, _: {**producer(world), "group_id": world.group}, transaction),
    26: Row(lambda world, _: {**producer(world), "committed": True}, open_transaction),
    27: Row(aborted_by_operator, transaction),
    28: Row(commit_in_transaction, transaction_with_group),
    29: Row(acl_filter, nothing, NO_ACLS),
    30: Row(lambda world, version: {"creations": [acl(world, version)]}, nothing, NO_ACLS),
    31: Row(lambda world, version: {"filters": [acl_filter(world, version)]}, nothing, NO_ACLS),
    32: Row(configs, topic),
    33: Row(configs, topic),
    35: Row(directories, topic),
    36: Row(lambda _, __: {"auth_bytes": b"token"}, nothing, NO_LOGIN),
    37: Row(grow, topic),
    42: Row(lambda world, _: {"groups_names": [world.group]}, offsets),
    43: Row(elect, topic, NOT_NEEDED),
    44: Row(configs, topic),
    46: Row(reassignments, topic),
    47: Row(lambda world, _: {"group_id": world.group, **on_partition(world)}, offsets),
    48: Row(
        lambda _, __: {
            "components": [{"entity_type": "user", "match_type": 2, "match": None}],
            "strict": False,
        },
        nothing,
    ),
    49: Row(quota, nothing),
    50: Row(lambda _, __: {"users": None}, nothing),
    51: Row(lambda world, _: {"deletions": [], "upsertions": [credential(world)]}, nothing),
    60: Row(lambda _, __: {"include_cluster_authorized_operations": True, "endpoint_type": 1}, nothing),
    61: Row(lambda world, _: {"topics": [{"name": world.topic, "partition_indexes": [0]}]}, topic),
    65: Row(lambda world, _: {"transactional_ids": [world.group]}, transaction),
    66: Row(
        lambda _, __: {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
        transaction,
    ),
    68: Row(beat, topic),
    69: Row(
        lambda world, _: {"group_ids": (world.group,), "include_authorized_operations": True}, consumer_member
    ),
    74: Row(lambda _, __: {"resource_types": [TOPIC_RESOURCE]}, topic),
    75: Row(lambda world, _: {"topics": [{"name": world.topic}], "response_partition_limit": 10}, topic),
}

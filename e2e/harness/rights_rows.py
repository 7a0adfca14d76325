"""The requests of the table of rights: one row for each API, and more for its further cases.

Rows of whole APIs are those of api_requests.py. The answers of KafScale and of Apache Kafka to the same users are
compared, so a row does not say which right it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import consumer_group_describe, delete_topics, metadata

from e2e.harness.api_requests import (
    ROWS,
    acl_filter,
    add_partitions,
    beat,
    committed,
    configs,
    create,
    fetch,
    join,
    metadata_of,
    produce,
)
from e2e.harness.oracles import Content
from e2e.harness.prepared import (
    NO_ID,
    TRANSACTION,
    Prepare,
    World,
    consumer_member,
    coordinated_transaction,
    no_transaction_closing,
    nothing,
    offsets,
    topic,
    transaction,
)
from e2e.harness.raw import Raw
from e2e.harness.requests import ask, ask_list_offsets
from e2e.harness.rights_users import START
from e2e.harness.services import until

SESSION_MS: Final = 600_000
READY_S: Final = 30.0
LATEST: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`fleeting`: an allowed request removes or changes what was prepared, so it is prepared for each user.

    `differs` says in words why KafScale answers an allowed request otherwise than Kafka. Then the errors of
    authorization are compared alone.
    """

    key: int
    label: str
    content: Callable[[World, int], Content]
    prepare: Prepare = nothing
    versions: tuple[int, int] = (0, 99)
    fleeting: bool = False
    differs: str = ""

    def name(self, version: int) -> str:
        """Of the topic, the group and the transactional id that the request is about."""
        return f"{START}{self.label.replace(' ', '-')}-{version}"

    def world(self, version: int) -> World:
        name = self.name(version)
        return World(topic=name, group=name, dry=True, session_ms=SESSION_MS)


def ready_topic(raw: Raw, world: World) -> World:
    """A topic that has an id and a leader: Kafka's may follow its creation by an instant."""
    found = [world]

    def led() -> bool:
        found[0] = topic(raw, world)
        error, _ = ask_list_offsets(raw, LATEST, topic=world.topic)
        return found[0].topic_id != NO_ID and error == ErrorCode.NONE

    until(f"the topic {world.topic} has a leader", led, READY_S)
    return found[0]


def absent(raw: Raw, world: World) -> World:
    """No topic of the name."""
    doomed = delete_topics.DeleteTopicsRequest(topic_names=[world.topic], timeout_ms=10_000)
    wanted = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=world.topic)], allow_auto_topic_creation=False
    )

    def gone() -> bool:
        ask(raw, delete_topics, 5, doomed)
        (found,) = ask(raw, metadata, 9, wanted).topics
        return bool(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    until(f"the topic {world.topic} is away", gone, READY_S)
    return world


def absent_again(raw: Raw, world: World) -> World:
    """As `absent`, after requests that create. Kafka makes such topics behind its answers, in the order of requests, so
    one that is created here shows that none of them is left."""
    return absent(raw, topic(raw, world))


def assigned_member(raw: Raw, world: World) -> World:
    """A group of the new protocol whose member has the topic's partition. Kafka assigns it with a later heartbeat."""
    world = ready_topic(raw, world)
    asked = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[world.group])

    def assigned() -> bool:
        consumer_member(raw, world)
        (group,) = ask(raw, consumer_group_describe, 1, asked).groups
        return any(member.target_assignment.topic_partitions for member in group.members)

    until("the member has its partition", assigned, READY_S)
    return world


def _on_resource(type_: int, name: str | None, config: str, value: str) -> Callable[[World, int], Content]:
    """DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of a resource. Without a name, that of the world."""

    def content(world: World, version: int) -> Content:
        said = dict(configs(world, version))
        (resource,) = said["resources"]
        change = {"name": config, "value": value, "config_operation": 0}
        about = {"resource_type": type_, "resource_name": name or world.group, "configs": [change]}
        return {**said, "resources": [{**resource, **about}]}

    return content


def _fetch_as_follower(world: World, version: int) -> Content:
    return {**fetch(world, version), "replica_id": 5}


def _transactional(world: World, version: int) -> Content:
    """A batch of a transaction: only then Kafka asks for the right on the transactional id."""
    said = produce(world, version)
    (on,) = said["topic_data"]
    records = build_batch(
        [Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    partitions = [{"index": 0, "records": records}]
    return {**said, "transactional_id": world.group, "topic_data": [{**on, "partition_data": partitions}]}


def _with_another_topic(world: World, version: int) -> Content:
    """Whose name no user has a right to, except those with a right to all."""
    said = add_partitions(world, version)
    (one,) = said["transactions"]
    topics = [*one["topics"], {"name": "other", "partitions": [0, 1]}]
    return {**said, "transactions": [{**one, "topics": topics}], "v3_and_below_topics": topics}


def _expression(world: World, version: int) -> Content:
    return {
        **beat(world, version),
        "member_id": "a-member",
        "subscribed_topic_names": None,
        "subscribed_topic_regex": f"{world.topic}.*",
    }


def _of_all_topics(world: World, version: int) -> Content:
    said = committed(world, version)
    (group,) = said["groups"]
    return {**said, "topics": None, "groups": [{**group, "topics": None}]}


def _dynamic_member(world: World, version: int) -> Content:
    """A dynamic member, which from version 4 on is asked to come again with an id."""
    return {**join(world, version), "group_instance_id": None}


def _deletion_of_acls(world: World, version: int) -> Content:
    return {"filters": [{**acl_filter(world, version), "principal_filter": "User:nobody"}]}


def _listed_acls(world: World, version: int) -> Content:
    return {**acl_filter(world, version), "principal_filter": "User:any"}


CONFIGS = {
    "a topic": (2, None, "retention.ms", "600000"),
    "a group": (32, None, "consumer.session.timeout.ms", "50000"),
    "a broker": (4, "1", "log.cleaner.threads", "1"),
    "a logger": (8, "1", "kafka.server.KafkaApis", "INFO"),
    "client metrics": (16, None, "interval.ms", "10000"),
}
CONFIG_APIS = (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
BROKERS_READ_ONLY = (
    "the configs of brokers are read-only, and there are no loggers and no client metrics to configure"
)
COMPARED_WHOLE = {
    (ApiKey.DESCRIBE_CONFIGS, "a broker"),
    *product(CONFIG_APIS, ("a topic", "a group")),
}
_K = ApiKey

CHANGED: Mapping[int, Mapping[str, Any]] = {
    # Kafka lists versions 0 to 2 for old clients, and closes the connection of each request.
    _K.PRODUCE: {"versions": (3, 99)},
    _K.CREATE_TOPICS: {
        "content": lambda world, version: create(replace(world, dry=False), version),
        "prepare": absent,
        "fleeting": True,
    },
    _K.JOIN_GROUP: {"content": _dynamic_member},
    _K.DESCRIBE_ACLS: {"content": _listed_acls},
    _K.DELETE_ACLS: {"content": _deletion_of_acls},
    _K.DELETE_TOPICS: {"fleeting": True},
    _K.DELETE_GROUPS: {"fleeting": True},
    _K.END_TXN: {"fleeting": True},
    _K.LIST_TRANSACTIONS: {"prepare": no_transaction_closing},
    # Kafka never answers a denied request for all users.
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: {
        "content": lambda world, _: {"users": [{"name": world.group}]},
        "differs": "of each user in a denied request, Kafka has a result without a name",
    },
    _K.CONSUMER_GROUP_DESCRIBE: {"fleeting": True, "prepare": assigned_member},
}
"""What is other than in api_requests.py, where a request is made once and without an authorizer."""
NOT_COMPARED: Final = {
    _K.API_VERSIONS: "it needs no right, and each system has its own list",
    _K.SASL_HANDSHAKE: "it is about logins",
    _K.SASL_AUTHENTICATE: "it is about logins",
    **dict.fromkeys(CONFIG_APIS, "by type below"),
}


def _whole_apis() -> Iterator[Case]:
    for key, row in ROWS.items():
        if key in NOT_COMPARED:
            continue
        prepare = ready_topic if row.prepare is topic else row.prepare
        made = Case(key=key, label=api_label(key), content=row.content, prepare=prepare)
        yield replace(made, **CHANGED.get(key, {}))


def _configs() -> Iterator[Case]:
    for key in CONFIG_APIS:
        for kind, row in CONFIGS.items():
            yield Case(
                key=key,
                label=f"{api_label(key)} of {kind}",
                content=_on_resource(*row),
                prepare=ready_topic if kind == "a topic" else nothing,
                differs="" if (key, kind) in COMPARED_WHOLE else BROKERS_READ_ONLY,
            )


CASES: Final[Sequence[Case]] = (
    *_whole_apis(),
    *_configs(),
    Case(
        key=_K.PRODUCE,
        label="Produce with a transactional id",
        content=_transactional,
        prepare=ready_topic,
        versions=(3, 99),
    ),
    Case(
        key=_K.FETCH,
        label="Fetch as a follower",
        content=_fetch_as_follower,
        prepare=ready_topic,
        versions=(4, 12),
        differs="KafScale has no followers, and answers as for a client",
    ),
    Case(
        key=_K.METADATA,
        label="Metadata by id",
        content=lambda world, version: {
            **metadata_of(world, version),
            "topics": [{"topic_id": world.topic_id, "name": None}],
        },
        prepare=ready_topic,
        versions=(12, 99),
    ),
    Case(
        key=_K.METADATA,
        label="Metadata of all topics",
        content=lambda world, version: {**metadata_of(world, version), "topics": None},
        prepare=ready_topic,
        versions=(1, 99),
    ),
    Case(
        key=_K.METADATA,
        label="Metadata that creates",
        content=lambda world, version: {**metadata_of(world, version), "allow_auto_topic_creation": True},
        prepare=absent_again,
        versions=(4, 99),
        fleeting=True,
    ),
    Case(
        key=_K.OFFSET_FETCH,
        label="OffsetFetch of all topics",
        content=_of_all_topics,
        prepare=offsets,
        versions=(2, 99),
    ),
    Case(
        key=_K.FIND_COORDINATOR,
        label="FindCoordinator of a transaction",
        content=lambda world, _: {
            "key": world.group,
            "key_type": TRANSACTION,
            "coordinator_keys": [world.group],
        },
        prepare=coordinated_transaction,
        versions=(1, 99),
    ),
    Case(
        key=_K.DELETE_TOPICS,
        label="DeleteTopics by id",
        content=lambda world, _: {
            "topics": [{"name": None, "topic_id": world.topic_id}],
            "timeout_ms": 10_000,
        },
        prepare=ready_topic,
        versions=(6, 99),
        fleeting=True,
    ),
    Case(
        key=_K.INIT_PRODUCER_ID,
        label="InitProducerId of a transaction",
        content=lambda world, _: {"transactional_id": world.group, "transaction_timeout_ms": 1_000},
        prepare=coordinated_transaction,
    ),
    Case(
        key=_K.ADD_PARTITIONS_TO_TXN,
        label="AddPartitionsToTxn with another topic",
        content=_with_another_topic,
        prepare=transaction,
    ),
    Case(
        key=_K.CONSUMER_GROUP_HEARTBEAT,
        label="ConsumerGroupHeartbeat with an expression",
        content=_expression,
        prepare=ready_topic,
        versions=(1, 99),
        differs="an expression is resolved with the request; Kafka does it later",
    ),
    Case(
        key=_K.DESCRIBE_TOPIC_PARTITIONS,
        label="DescribeTopicPartitions of all topics",
        content=lambda _, __: {"topics": [], "response_partition_limit": 2_000},
        prepare=ready_topic,
    ),
)

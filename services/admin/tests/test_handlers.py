"""The admin APIs as clients see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kafscale.admin.plan import NewTopic
from kafscale.storage.heads import OwnerRecord, encode_owner
from kafscale.storage.membership import Listener
from kafscale.storage.topics import Topic
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import alter_configs as alter_schema
from kafscale.wire.schema import create_partitions as partitions_schema
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import describe_configs as describe_schema
from kafscale.wire.schema import incremental_alter_configs as incremental_schema
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin

TOPIC, BROKER = 2, 4
UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def ask_metadata(
    admin: Admin, version: int, *names: str, create: bool = True, everything: bool = False
) -> Any:
    topics = None if everything else [metadata_schema.MetadataRequestTopic(name=name) for name in names]
    request = metadata_schema.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return await admin.ask(metadata, metadata_schema, request, version)


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_every_version_creates_the_topic_and_names_a_live_leader(
    admin: Admin, version: int
) -> None:
    await admin.register(1)
    await admin.register(2)
    answer = await ask_metadata(admin, version, f"t{version}")
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    (topic,) = answer.topics
    assert topic.error_code == 0
    assert len(topic.partitions) == 3
    assert all(
        part.leader_id in (1, 2) and part.replica_nodes == [part.leader_id] for part in topic.partitions
    )
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 10:
        assert topic.topic_id != bytes(16)


async def test_metadata_of_no_topics_lists_none_and_of_null_all(admin: Admin) -> None:
    await admin.register(1)
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    assert [topic.name for topic in (await ask_metadata(admin, 0)).topics] == ["t"]
    assert (await ask_metadata(admin, 1)).topics == []
    assert [topic.name for topic in (await ask_metadata(admin, 1, everything=True)).topics] == ["t"]


@pytest.mark.parametrize("version", range(9, 14))
async def test_librdkafkas_question_for_all_topics_is_understood(admin: Admin, version: int) -> None:
    """Its four bytes of null, and then the flags."""
    await admin.register(1)
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    flags = b"\x01\x01\x01" if version < 11 else b"\x01\x01"
    body = bytes(4) + flags + b"\0"
    answer = await metadata.handler(admin.context)(inbound(body, metadata_schema.API_KEY, version))
    (topic,) = metadata_schema.decode_response(b"".join(answer), version).topics
    assert (topic.name, topic.topic_authorized_operations) == ("t", 0b1101_1111_1000)
    with pytest.raises(WireError):
        await metadata.handler(admin.context)(inbound(body + b"\0", metadata_schema.API_KEY, version))


async def test_a_client_that_forbids_creation_gets_unknown_topic(admin: Admin) -> None:
    await admin.register(1)
    answer = await ask_metadata(admin, 4, "t", create=False)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await admin.store.read("t") is None


@pytest.mark.parametrize("name", ["a/b", "", "..", "x" * 250])
async def test_an_illegal_name_is_refused_and_never_created(admin: Admin, name: str) -> None:
    await admin.register(1)
    answer = await ask_metadata(admin, 9, name)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert admin.topics.all() == () or not list(admin.topics.all())


async def test_metadata_by_an_unknown_id_is_unknown_topic_id(admin: Admin) -> None:
    await admin.register(1)
    request = metadata_schema.MetadataRequest(
        topics=[metadata_schema.MetadataRequestTopic(name=None, topic_id=b"\1" * 16)]
    )
    answer = await admin.ask(metadata, metadata_schema, request, 12)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_leader_epochs_are_those_of_the_owners(admin: Admin) -> None:
    await admin.register(1)
    topic = await admin.store.create(NewTopic(name="t"), now_ms=1)
    assert isinstance(topic, Topic)
    await admin.etcd.put(admin.keys.owner(topic.topic_id, 1), encode_owner(OwnerRecord(epoch=5, owner="1/b")))
    await admin.owners.refresh()
    answer = await ask_metadata(admin, 9, "t")
    assert [part.leader_epoch for part in answer.topics[0].partitions] == [-1, 5, -1]


async def test_addresses_are_those_of_the_listener_that_was_asked(admin: Admin) -> None:
    await admin.register(
        1,
        Listener(name="INTERNAL", host="in", port=1),
        Listener(name="PLAINTEXT", host="out", port=2),
        rack="a",
    )
    (broker,) = (await ask_metadata(admin, 9)).brokers
    assert (broker.host, broker.port, broker.rack) == ("out", 2, "a")


async def test_front_doors_behind_one_address_are_one_broker(admin: Admin) -> None:
    shared = Listener(name="PLAINTEXT", host="lb", port=9092)
    await admin.register(2, shared)
    await admin.register(1, shared)
    answer = await ask_metadata(admin, 9, "t")
    assert [broker.node_id for broker in answer.brokers] == [1]
    assert {part.leader_id for part in answer.topics[0].partitions} == {1}


async def test_without_a_front_door_leaders_are_not_available(admin: Admin) -> None:
    answer = await ask_metadata(admin, 9, "t")
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.LEADER_NOT_AVAILABLE}


async def test_create_topics_answers_one_result_per_topic_and_validate_only_creates_none(
    admin: Admin,
) -> None:
    def topic(name: str, partitions: int = 2) -> create_schema.CreateTopicsRequestTopic:
        return create_schema.CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=-1
        )

    request = create_schema.CreateTopicsRequest(topics=[topic("a"), topic("b", 0), topic("c"), topic("c")])
    for validate_only in (True, False):
        request.validate_only = validate_only
        answer = await admin.ask(create_topics, create_schema, request, 7)
        codes = {result.name: result.error_code for result in answer.topics}
        assert codes == {"a": 0, "b": ErrorCode.INVALID_PARTITIONS, "c": ErrorCode.INVALID_REQUEST}
        assert (await admin.store.read("a") is None) == validate_only
    assert await admin.store.read("c") is None


async def test_a_topic_that_is_only_validated_is_answered_as_if_it_were_made(admin: Admin) -> None:
    config = create_schema.CreateTopicsRequestTopicConfig(name="segment.bytes", value="4096")
    topic = create_schema.CreateTopicsRequestTopic(
        name="t", num_partitions=2, replication_factor=-1, configs=[config]
    )
    request = create_schema.CreateTopicsRequest(topics=[topic])
    answers = []
    for validate_only in (True, False):
        request.validate_only = validate_only
        answer = await admin.ask(create_topics, create_schema, request, 7)
        answers.append((answer.topics[0].num_partitions, answer.topics[0].configs))
    assert answers[0] == answers[1]
    assert ("segment.bytes", "4096") in [(each.name, each.value) for each in answers[0][1]]


async def test_partitions_are_added_and_never_removed(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for count, expected in ((5, 0), (5, ErrorCode.INVALID_PARTITIONS), (4, ErrorCode.INVALID_PARTITIONS)):
        asked = partitions_schema.CreatePartitionsRequestTopic(name="t", count=count, assignments=None)
        request = partitions_schema.CreatePartitionsRequest(topics=[asked])
        answer = await admin.ask(create_partitions, partitions_schema, request, 3)
        assert answer.results[0].error_code == expected
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.partitions == 5


async def grown(
    admin: Admin, name: str, count: int, *, assigned: int | None = None, validate_only: bool = False
) -> int:
    """The error of one CreatePartitions, with assignments for that many partitions."""
    assignments = None
    if assigned is not None:
        assignments = [partitions_schema.CreatePartitionsRequestAssignment([n]) for n in range(assigned)]
    asked = partitions_schema.CreatePartitionsRequestTopic(name=name, count=count, assignments=assignments)
    request = partitions_schema.CreatePartitionsRequest(topics=[asked], validate_only=validate_only)
    answer = await admin.ask(create_partitions, partitions_schema, request, 3)
    return int(answer.results[0].error_code)


@pytest.mark.parametrize(
    ("count", "assigned", "expected"),
    [
        (5, None, 0),
        (5, 2, 0),
        (5, 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, None, ErrorCode.INVALID_PARTITIONS),
        (10_001, None, ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_more_partitions_may_be_only_validated(
    admin: Admin, count: int, assigned: int | None, expected: int
) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for validate_only in (True, False):
        assert await grown(admin, "t", count, assigned=assigned, validate_only=validate_only) == expected
        stored = await admin.store.read("t")
        assert stored is not None
        assert stored.partitions == (count if not expected and not validate_only else 3)


async def test_a_topic_that_is_not_there_gets_no_partitions(admin: Admin) -> None:
    for validate_only in (True, False):
        assert await grown(admin, "no", 9, validate_only=validate_only) == UNKNOWN_TOPIC_OR_PARTITION


async def test_assigned_brokers_are_logged_and_ignored(admin: Admin) -> None:
    assignments = [
        create_schema.CreateTopicsRequestReplicaAssignment(partition_index=n, broker_ids=[40 + n])
        for n in (1, 0)
    ]
    asked = create_schema.CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    request = create_schema.CreateTopicsRequest(topics=[asked])
    with structlog.testing.capture_logs() as logs:
        answer = await admin.ask(create_topics, create_schema, request, 7)
        assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 2)
        assert await grown(admin, "t", 3, assigned=1) == 0
    told = [(entry["topic"], entry["partitions"]) for entry in logs if "assignments" in entry["event"]]
    assert told == [("t", 2), ("t", 3)]


@pytest.mark.parametrize("version", range(8))
async def test_every_version_creates_a_topic(admin: Admin, version: int) -> None:
    topic = create_schema.CreateTopicsRequestTopic(name="t", num_partitions=2, replication_factor=1)
    request = create_schema.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
    answer = await admin.ask(create_topics, create_schema, request, version)
    assert [(result.name, result.error_code) for result in answer.topics] == [("t", 0)]
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.partitions == 2


async def described(admin: Admin, kind: int, name: str, keys: list[str] | None = None) -> Any:
    resource = describe_schema.DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = describe_schema.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return (await admin.ask(describe_configs, describe_schema, request, 4)).results[0]


async def test_a_config_that_was_altered_is_described_with_its_source(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    resource = incremental_schema.IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[
            incremental_schema.IncrementalAlterConfigsRequestAlterableConfig(
                name="retention.ms", value="120000"
            )
        ],
    )
    request = incremental_schema.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await admin.ask(incremental_alter_configs, incremental_schema, request, 1)
    assert answer.responses[0].error_code == 0
    result = await described(admin, TOPIC, "t", ["retention.ms", "segment.bytes", "no.such.key"])
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("retention.ms", "120000", 1),
        ("segment.bytes", "1073741824", 5),
    ]


async def test_alter_configs_puts_unnamed_keys_back_to_their_defaults(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t", configs={"retention.ms": "1"}), now_ms=1)
    resource = alter_schema.AlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[alter_schema.AlterConfigsRequestAlterableConfig(name="segment.bytes", value="4096")],
    )
    request = alter_schema.AlterConfigsRequest(resources=[resource])
    assert (await admin.ask(alter_configs, alter_schema, request, 2)).responses[0].error_code == 0
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.configs == {"segment.bytes": "4096"}


async def test_a_resource_named_twice_is_not_altered(admin: Admin) -> None:
    for name in ("t", "u"):
        await admin.store.create(NewTopic(name=name), now_ms=1)

    def resource(name: str, value: str) -> alter_schema.AlterConfigsRequestResource:
        config = alter_schema.AlterConfigsRequestAlterableConfig(name="retention.ms", value=value)
        return alter_schema.AlterConfigsRequestResource(
            resource_type=TOPIC, resource_name=name, configs=[config]
        )

    request = alter_schema.AlterConfigsRequest(
        resources=[resource("t", "1"), resource("u", "2"), resource("t", "3")]
    )
    answer = await admin.ask(alter_configs, alter_schema, request, 2)
    twice = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in answer.responses] == [twice, 0, twice]
    stored = {name: await admin.store.read(name) for name in ("t", "u")}
    assert [topic.configs if topic else None for topic in stored.values()] == [{}, {"retention.ms": "2"}]


@pytest.mark.parametrize("validate_only", [True, False])
async def test_what_is_only_validated_is_not_changed(admin: Admin, validate_only: bool) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for value, expected in (("-2", ErrorCode.INVALID_CONFIG), ("5", 0)):
        config = alter_schema.AlterConfigsRequestAlterableConfig(name="retention.ms", value=value)
        resource = alter_schema.AlterConfigsRequestResource(
            resource_type=TOPIC, resource_name="t", configs=[config]
        )
        request = alter_schema.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        answer = await admin.ask(alter_configs, alter_schema, request, 1)
        assert answer.responses[0].error_code == expected
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.configs == ({} if validate_only else {"retention.ms": "5"})


async def test_brokers_are_described_by_node_id_and_cannot_be_altered(admin: Admin) -> None:
    await admin.register(3)
    result = await described(admin, BROKER, "3")
    values = {config.name: config.value for config in result.configs}
    assert values["broker.id"] == "3"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9003"
    assert "kafscale.segment.bytes" in values
    assert all(config.read_only for config in result.configs)
    resource = alter_schema.AlterConfigsRequestResource(resource_type=BROKER, resource_name="3", configs=[])
    request = alter_schema.AlterConfigsRequest(resources=[resource])
    answer = await admin.ask(alter_configs, alter_schema, request, 2)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


async def test_every_key_that_tools_read_has_a_value_a_type_a_chain_and_a_sentence(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t", configs={"cleanup.policy": "compact"}), now_ms=1)
    request = describe_schema.DescribeConfigsRequest(
        resources=[
            describe_schema.DescribeConfigsRequestResource(
                resource_type=TOPIC, resource_name="t", configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = (await admin.ask(describe_configs, describe_schema, request, 4)).results
    configs = {config.name: config for config in result.configs}
    assert set(configs) == set(TOPIC_CONFIGS)
    assert all(config.documentation and config.config_type for config in result.configs)
    policy = configs["cleanup.policy"]
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert (policy.value, policy.config_source, policy.read_only, policy.config_type) == (
        "compact",
        1,
        False,
        7,
    )
    lag = configs["max.compaction.lag.ms"]
    assert [(each.name, each.source) for each in lag.synonyms] == [("log.cleaner.max.compaction.lag.ms", 5)]
    assert configs["min.insync.replicas"].read_only


@pytest.mark.parametrize("version", range(5))
async def test_configs_are_described_in_every_version(admin: Admin, version: int) -> None:
    await admin.store.create(NewTopic(name="t", configs={"retention.ms": "5"}), now_ms=1)
    keys = ["retention.ms", "max.message.bytes"]
    resource = describe_schema.DescribeConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=keys
    )
    request = describe_schema.DescribeConfigsRequest(resources=[resource])
    (result,) = (await admin.ask(describe_configs, describe_schema, request, version)).results
    values = {config.name: config.value for config in result.configs}
    assert values == {"retention.ms": "5", "max.message.bytes": "1048588"}
    if version == 0:
        assert [config.is_default for config in result.configs] == [True, False]


async def test_a_broker_shows_what_topics_inherit_and_what_it_was_set_to(admin: Admin) -> None:
    await admin.register(3)
    configs = {config.name: config for config in (await described(admin, BROKER, "3")).configs}
    for name, value, source in (
        ("message.max.bytes", "1048588", 5),
        ("log.retention.ms", "604800000", 5),
        ("default.replication.factor", "1", 5),
        ("num.partitions", "3", 4),
        ("auto.create.topics.enable", "true", 5),
        ("broker.id", "3", 4),
    ):
        assert (configs[name].value, configs[name].config_source) == (value, source), name
        assert [each.value for each in configs[name].synonyms] == [value]
    asked = await described(admin, BROKER, "3", ["num.partitions", "no.such.key"])
    assert [config.name for config in asked.configs] == ["num.partitions"]


@pytest.mark.parametrize("name", ["4", "x", "9" * 5_000, "-1"])
async def test_a_broker_that_is_not_there_is_an_invalid_request(admin: Admin, name: str) -> None:
    await admin.register(3)
    assert (await described(admin, BROKER, name)).error_code == ErrorCode.INVALID_REQUEST


async def test_nothing_was_set_for_all_brokers(admin: Admin) -> None:
    result = await described(admin, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


async def test_a_change_is_in_every_view_soon_after_the_answer(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    seen = asyncio.Event()
    admin.topics.subscribe(lambda name, topic: seen.set() if topic and topic.segment_bytes == 4096 else None)
    await admin.store.change("t", lambda old: Topic(**{**_fields(old), "configs": {"segment.bytes": "4096"}}))
    await asyncio.wait_for(seen.wait(), 1)


def _fields(topic: Topic) -> dict[str, Any]:
    return {name: getattr(topic, name) for name in topic.__slots__}

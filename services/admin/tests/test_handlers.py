"""The admin APIs as clients see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
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
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import alter_configs as alter_schema
from kafscale.wire.schema import create_partitions as partitions_schema
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import describe_configs as describe_schema
from kafscale.wire.schema import incremental_alter_configs as incremental_schema
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin

TOPIC, BROKER = 2, 4


async def ask_metadata(
    admin: Admin, version: int, *names: str, create: bool = True, everything: bool = False
) -> Any:
    topics = None if everything else [metadata_schema.MetadataRequestTopic(name=name) for name in names]
    request = metadata_schema.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return await admin.ask(metadata, metadata_schema, request, version)


@pytest.mark.parametrize("version", range(9, 14))
async def test_librdkafkas_padded_question_for_all_topics_is_answered(admin: Admin, version: int) -> None:
    await admin.register(1)
    await ask_metadata(admin, version, "there")
    cluster_flag = b"\x00" if version <= 10 else b""
    body = b"\x00\x00\x00\x00" + b"\x01" + cluster_flag + b"\x00" + b"\x00"
    answer = await admin.ask_bytes(metadata, metadata_schema, body, version)
    assert [topic.name for topic in answer.topics] == ["there"]


async def test_only_that_padding_is_forgiven(admin: Admin) -> None:
    await admin.register(1)
    for body in (b"\x00\x00\x00\x00\x01\x00\x00\x00", b"\x00\x00\x01\x00\x01\x00\x00", b"\x00" * 6):
        with pytest.raises(WireError):
            await admin.ask_bytes(metadata, metadata_schema, body, 12)


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


async def test_a_change_is_in_every_view_soon_after_the_answer(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    seen = asyncio.Event()
    admin.topics.subscribe(lambda name, topic: seen.set() if topic and topic.segment_bytes == 4096 else None)
    await admin.store.change("t", lambda old: Topic(**{**_fields(old), "configs": {"segment.bytes": "4096"}}))
    await asyncio.wait_for(seen.wait(), 1)


def _fields(topic: Topic) -> dict[str, Any]:
    return {name: getattr(topic, name) for name in topic.__slots__}

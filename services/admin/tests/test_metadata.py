"""Metadata as clients see it: topics, creation by asking, leaders and addresses."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.admin.handlers import metadata
from kafscale.admin.plan import NewTopic
from kafscale.storage.heads import OwnerRecord, encode_owner
from kafscale.storage.membership import Listener
from kafscale.storage.topics import Topic
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin


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

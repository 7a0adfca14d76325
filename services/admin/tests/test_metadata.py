"""Metadata as clients see it: topics, creation by asking, leaders and addresses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kafscale.admin.handlers import metadata
from kafscale.admin.plan import NewTopic, Refused
from kafscale.admin.topics import CREATIONS_MAX
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Listener
from kafscale.storage.topics import Topic
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin, running


async def ask_metadata(
    admin: Admin, version: int, *names: str, create: bool = True, everything: bool = False
) -> Any:
    topics = None if everything else [metadata_schema.MetadataRequestTopic(name=name) for name in names]
    request = metadata_schema.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return await admin.ask(metadata, metadata_schema, request, version)


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_every_version_creates_the_topic_and_the_next_names_a_live_leader(
    admin: Admin, version: int
) -> None:
    """As Kafka does: the answer that creates says that there is none yet."""
    await admin.register(1)
    await admin.register(2)
    (creating,) = (await ask_metadata(admin, version, f"t{version}")).topics
    assert (creating.error_code, creating.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert creating.topic_id == bytes(16)
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
    assert [part.leader_epoch for part in answer.topics[0].partitions] == [1, 5, 1]


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
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    answer = await ask_metadata(admin, 9, "t")
    assert [broker.node_id for broker in answer.brokers] == [1]
    assert {part.leader_id for part in answer.topics[0].partitions} == {1}


async def test_without_a_front_door_leaders_are_not_available(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    answer = await ask_metadata(admin, 9, "t")
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.LEADER_NOT_AVAILABLE}


async def test_what_is_named_many_times_is_answered_once(admin: Admin) -> None:
    await admin.register(1)
    topic = await admin.store.create(NewTopic(name="t"), now_ms=1)
    assert isinstance(topic, Topic)
    answer = await ask_metadata(admin, 9, "t", "no", "t", "a/b", "no", "a/b", create=False)
    assert [(each.name, each.error_code) for each in answer.topics] == [("t", 0), ("no", 3), ("a/b", 17)]
    by_id = metadata_schema.MetadataRequestTopic(name=None, topic_id=topic.topic_id)
    request = metadata_schema.MetadataRequest(topics=[by_id] * 3)
    assert len((await admin.ask(metadata, metadata_schema, request, 12)).topics) == 1


async def test_operations_are_told_of_whatever_has_a_name(admin: Admin) -> None:
    """KIP-430, as a broker without an authorizer answers: also of names that are no topics, never of unknown ids."""
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for told, expected in ((True, 0b1101_1111_1000), (False, -(2**31))):
        named = [metadata_schema.MetadataRequestTopic(name=name) for name in ("t", "no", "a/b")]
        unknown = metadata_schema.MetadataRequestTopic(name=None, topic_id=b"\1" * 16)
        request = metadata_schema.MetadataRequest(
            topics=[*named, unknown],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=told,
        )
        answer = await admin.ask(metadata, metadata_schema, request, 12)
        operations = [topic.topic_authorized_operations for topic in answer.topics]
        assert operations == [expected, expected, expected, -(2**31)]


async def test_one_request_creates_a_few_topics_and_the_client_asks_again_for_the_rest(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"auto_create_topics_per_request": 3})) as admin:
        names = [f"t{n}" for n in range(8)]
        made = []
        while len(made) < len(names):
            answer = await ask_metadata(admin, 9, *names)
            assert {topic.error_code for topic in answer.topics} <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            made.append(sum(topic.error_code == 0 for topic in answer.topics))
        assert made[:4] == [0, 3, 6, 8]


async def test_no_more_topics_are_under_way_than_there_are_places(admin: Admin) -> None:
    """Of requests that come at once, some have nothing made, and none waits for another."""
    asked = [[f"t{request}-{n}" for n in range(10)] for request in range(8)]
    answers = await asyncio.gather(*(ask_metadata(admin, 9, *names) for names in asked))
    codes = {topic.error_code for answer in answers for topic in answer.topics}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(admin.topics.all()) == CREATIONS_MAX
    await ask_metadata(admin, 9, "one-more")
    assert admin.topics.by_name("one-more") is not None


async def test_topics_and_partitions_have_a_limit_whoever_makes_them(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"topics_max": 2, "partitions_max": 7})) as admin:
        assert isinstance(await admin.store.create(NewTopic(name="a"), now_ms=1), Topic)
        full = await admin.store.create(NewTopic(name="b", partitions=5), now_ms=1)
        assert isinstance(full, Refused)
        assert (full.error, "KAFSCALE_PARTITIONS_MAX" in full.message) == (ErrorCode.POLICY_VIOLATION, True)
        assert isinstance(await admin.store.check(NewTopic(name="b", partitions=5)), Refused)
        grown = await admin.store.change("a", lambda topic: replace(topic, partitions=8))
        assert isinstance(grown, Refused)
        assert isinstance(await admin.store.change("a", lambda topic: replace(topic, partitions=4)), Topic)
        assert isinstance(await admin.store.create(NewTopic(name="b"), now_ms=1), Topic)
        (refused,) = (await ask_metadata(admin, 9, "z")).topics
        assert refused.error_code == ErrorCode.POLICY_VIOLATION


async def test_of_topics_that_are_made_at_once_no_more_are_made_than_the_limit(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"topics_max": 2})) as admin:
        names = "abcdef"
        made = await asyncio.gather(*(admin.store.create(NewTopic(name=name), now_ms=1) for name in names))
        assert sum(isinstance(each, Topic) for each in made) == 2
        assert len(admin.topics.all()) == 2


async def test_topics_that_do_not_fit_into_an_answer_are_refused_one_by_one(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"answer_bytes_max": 1 << 20})) as admin:
        for name in "abcde":
            await admin.store.create(NewTopic(name=name, partitions=10_000), now_ms=1)
        answer = await ask_metadata(admin, 9, *"abcde")
        assert [topic.error_code for topic in answer.topics] == [0, 0, 0, 42, 42]
        assert [len(topic.partitions) for topic in answer.topics] == [10_000, 10_000, 10_000, 0, 0]
        everything = await ask_metadata(admin, 13, everything=True)
        assert (everything.error_code, everything.topics) == (ErrorCode.INVALID_REQUEST, [])
        with pytest.raises(WireError, match="KAFSCALE_ANSWER_BYTES_MAX"):
            await ask_metadata(admin, 12, everything=True)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_the_size_that_is_counted_is_never_below_the_answers_own(admin: Admin, replicas: int) -> None:
    for node_id in range(1, 4):
        await admin.register(node_id)
    await admin.store.create(NewTopic(name="t", partitions=1_000, replication_factor=replicas), now_ms=1)
    for version in range(14):
        request = metadata_schema.MetadataRequest(topics=[metadata_schema.MetadataRequestTopic(name="t")])
        body = b"".join(metadata_schema.encode_request(request, version))
        answer = await metadata.handler(admin.context)(inbound(body, metadata_schema.API_KEY, version))
        size = sum(map(len, answer))
        partition_bytes = metadata.PARTITION_BYTES + metadata.REPLICA_BYTES * replicas
        counted = metadata.TOPIC_BYTES + 1 + partition_bytes * 1_000
        assert counted * 0.7 < size < counted + 200, version  # 200: brokers and the rest

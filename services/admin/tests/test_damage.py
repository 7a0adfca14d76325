"""A topic's damaged record harms that topic, and nothing is ever written over it as if it were absent."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.admin.cluster_view import cluster_id
from kafscale.admin.handlers import create_topics, delete_records, delete_topics, describe_log_dirs, metadata
from kafscale.admin.plan import NewTopic
from kafscale.log.heads import Head, encode_head
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.topics import Topic, decode_epoch_floor
from kafscale.store.v1 import store_pb2 as pb
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import delete_records as records_schema
from kafscale.wire.schema import delete_topics as delete_schema
from kafscale.wire.schema import describe_log_dirs as dirs_schema
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin

GARBAGE = b"\xff\xff garbage"
NEWER = pb.TopicConfig(schema=2, topic_id=bytes(16), partitions=1).SerializeToString()


async def created(admin: Admin, name: str) -> Topic:
    topic = await admin.store.create(NewTopic(name=name), now_ms=1)
    assert isinstance(topic, Topic), topic
    return topic


async def asked_for(admin: Admin, *names: str) -> list[int]:
    await admin.register(1)
    request = metadata_schema.MetadataRequest(
        topics=[metadata_schema.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=True,
    )
    answer = await admin.ask(metadata, metadata_schema, request, 12)
    return [topic.error_code for topic in answer.topics]


@pytest.mark.parametrize("seen", [True, False], ids=["the view knows", "the view lags"])
@pytest.mark.parametrize("value", [GARBAGE, NEWER, b""])
async def test_a_damaged_topic_is_neither_made_anew_nor_changed_nor_deleted(
    admin: Admin, value: bytes, seen: bool
) -> None:
    await created(admin, "u")
    key = admin.keys.topic("t")
    put = await admin.etcd.put(key, value)
    if seen:
        await admin.topics.refresh()
        assert admin.topics.is_damaged("t")
        assert await asked_for(admin, "t", "u") == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    asked = create_schema.CreateTopicsRequestTopic(name="t", num_partitions=1, replication_factor=1)
    answer = await admin.ask(
        create_topics, create_schema, create_schema.CreateTopicsRequest(topics=[asked]), 5
    )
    assert answer.topics[0].error_code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.KAFKA_STORAGE_ERROR)
    request = delete_schema.DeleteTopicsRequest(topic_names=["t"], timeout_ms=100)
    answer = await admin.ask(delete_topics, delete_schema, request, 5)
    assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    found = await admin.etcd.get(key)
    assert found is not None
    assert (found.value, found.mod_revision) == (value, put.revision)


async def test_a_damaged_epoch_floor_stops_its_name_alone_from_being_made(admin: Admin) -> None:
    """Epochs of a name never restart, so a guess would let a writer of the old topic overwrite the new one's."""
    key = admin.keys.epoch_floor("t")
    await admin.etcd.put(key, GARBAGE)
    asked = [
        create_schema.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
        for name in "tu"
    ]
    answer = await admin.ask(create_topics, create_schema, create_schema.CreateTopicsRequest(topics=asked), 5)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    found = await admin.etcd.get(key)
    assert found is not None
    assert found.value == GARBAGE


async def deletion_of_t(admin: Admin) -> int:
    task = asyncio.create_task(admin.deletions.run())
    try:
        request = delete_schema.DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=5_000)
        answer = await admin.ask(delete_topics, delete_schema, request, 5)
        assert not task.done(), "the deletions ended"
        assert await admin.store.read("u") is None, "another topic's deletion does not wait for it"
        return int(answer.responses[0].error_code)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_topic_with_a_damaged_head_is_deleted_by_the_epoch_of_its_owner_record(admin: Admin) -> None:
    topic = await created(admin, "t")
    await created(admin, "u")
    await admin.etcd.put(admin.keys.head(topic.topic_id, 0), GARBAGE)
    await admin.etcd.put(admin.keys.owner(topic.topic_id, 0), encode_owner(OwnerRecord(epoch=17)))
    await admin.etcd.put(admin.keys.head(topic.topic_id, 1), encode_head(Head(epoch=3, topic="t")))
    assert await deletion_of_t(admin) == 0
    assert await admin.store.read("t") is None
    floor = await admin.etcd.get(admin.keys.epoch_floor("t"))
    assert floor is not None
    assert decode_epoch_floor(floor.value) == 17


async def test_a_deletion_waits_while_nothing_says_how_far_the_epochs_went(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await created(admin, "t")
    await created(admin, "u")
    await admin.etcd.put(admin.keys.head(topic.topic_id, 0), GARBAGE)
    await admin.etcd.put(admin.keys.owner(topic.topic_id, 0), GARBAGE)
    assert await deletion_of_t(admin) == 0
    assert await admin.store.read("t") is not None
    found = await admin.etcd.get(admin.keys.head(topic.topic_id, 0))
    assert found is not None
    assert found.value == GARBAGE


async def test_records_of_a_damaged_partition_are_not_deleted_and_those_of_others_are(admin: Admin) -> None:
    topic = await created(admin, "t")
    await admin.etcd.put(admin.keys.topic("u"), GARBAGE)
    for partition in range(3):
        value = encode_head(Head(epoch=1, topic="t", next=10))
        await admin.etcd.put(admin.keys.head(topic.topic_id, partition), GARBAGE if partition == 1 else value)
    await admin.etcd.put(admin.keys.meta(topic.topic_id, 2), GARBAGE)
    request = records_schema.DeleteRecordsRequest(
        timeout_ms=5_000,
        topics=[
            records_schema.DeleteRecordsRequestTopic(
                name=name,
                partitions=[
                    records_schema.DeleteRecordsRequestPartition(partition_index=n, offset=5)
                    for n in range(3)
                ],
            )
            for name in "tu"
        ],
    )
    answer = await admin.ask(delete_records, records_schema, request, 2)
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    told = {
        (found.name, part.partition_index): part.error_code
        for found in answer.topics
        for part in found.partitions
    }
    assert told == {
        **{("t", 0): ErrorCode.NONE, ("t", 1): storage, ("t", 2): storage},
        **{("u", partition): storage for partition in range(3)},
    }


async def test_the_sizes_of_others_are_told_beside_a_damaged_partition(admin: Admin) -> None:
    topic = await created(admin, "t")
    await admin.etcd.put(admin.keys.head(topic.topic_id, 0), GARBAGE)
    await admin.etcd.put(admin.keys.head(topic.topic_id, 1), encode_head(Head(epoch=1, topic="t", bytes=7)))
    answer = await admin.ask(
        describe_log_dirs, dirs_schema, dirs_schema.DescribeLogDirsRequest(topics=None), 4
    )
    assert answer.results[0].error_code == 0
    sizes = {part.partition_index: part.partition_size for part in answer.results[0].topics[0].partitions}
    assert sizes == {0: -1, 1: 7, 2: 0}


async def test_a_damaged_cluster_record_costs_the_id_and_is_not_drawn_anew(admin: Admin) -> None:
    await admin.etcd.put(admin.keys.cluster(), GARBAGE)
    assert await cluster_id(admin.etcd, admin.keys, 1, admin.history) == ""
    found = await admin.etcd.get(admin.keys.cluster())
    assert found is not None
    assert found.value == GARBAGE

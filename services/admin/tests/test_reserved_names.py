"""The names of Kafka's own state: nobody creates these topics, and clients see that they are internal (KafkaApis)."""

from __future__ import annotations

import pytest
from kafscale.admin.handlers import (
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    metadata,
)
from kafscale.admin.plan import CLUSTER_METADATA, RESERVED_NAMES
from kafscale.storage.topics import INTERNAL_TOPICS
from kafscale.testkit.logbuilder import create_topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import delete_records as records_schema
from kafscale.wire.schema import delete_topics as delete_schema
from kafscale.wire.schema import describe_topic_partitions as describe_schema
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def seen(admin: Admin, name: str) -> tuple[int, bool]:
    """Error and `is_internal`, which Metadata and DescribeTopicPartitions agree on."""
    asked = metadata_schema.MetadataRequest(topics=[metadata_schema.MetadataRequestTopic(name=name)])
    (topic,) = (await admin.ask(metadata, metadata_schema, asked, 12)).topics
    wanted = describe_schema.DescribeTopicPartitionsRequest(
        topics=[describe_schema.DescribeTopicPartitionsRequestTopicRequest(name=name)]
    )
    (described,) = (await admin.ask(describe_topic_partitions, describe_schema, wanted, 0)).topics
    assert (described.error_code, described.is_internal) == (topic.error_code, topic.is_internal)
    return topic.error_code, topic.is_internal


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
async def test_metadata_does_not_create_it(admin: Admin, name: str) -> None:
    await admin.register(1)
    for _ in range(2):
        assert await seen(admin, name) == (UNKNOWN, name in INTERNAL_TOPICS)
    assert await admin.store.read(name) is None


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("validate_only", [True, False])
async def test_a_client_cannot_create_it_and_reads_why(admin: Admin, name: str, validate_only: bool) -> None:
    topic = create_schema.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    request = create_schema.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (answered,) = (await admin.ask(create_topics, create_schema, request, 7)).topics
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION if name != CLUSTER_METADATA else ErrorCode.INVALID_REQUEST
    assert answered.error_code == refused
    assert name in (answered.error_message or "")
    assert await admin.store.read(name) is None


async def test_a_name_that_only_begins_like_one_is_created(admin: Admin) -> None:
    await admin.register(1)
    asked = metadata_schema.MetadataRequest(
        topics=[metadata_schema.MetadataRequestTopic(name="__consumer_offsets_2")]
    )
    await admin.ask(metadata, metadata_schema, asked, 12)
    assert await seen(admin, "__consumer_offsets_2") == (0, False)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_one_that_an_earlier_version_created_is_shown_keeps_its_records_and_can_be_deleted(
    admin: Admin, name: str
) -> None:
    await admin.register(1)
    await create_topic(admin.etcd, admin.keys, name, partitions=1)
    await admin.topics.refresh()
    assert await seen(admin, name) == (0, True)
    part = records_schema.DeleteRecordsRequestPartition(partition_index=0, offset=-1)
    trim = records_schema.DeleteRecordsRequest(
        topics=[records_schema.DeleteRecordsRequestTopic(name=name, partitions=[part])], timeout_ms=1_000
    )
    (trimmed,) = (await admin.ask(delete_records, records_schema, trim, 2)).topics
    assert trimmed.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    doomed = delete_schema.DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)
    (deleted,) = (await admin.ask(delete_topics, delete_schema, doomed, 5)).responses
    assert deleted.error_code == 0

"""A tool that asks for a replication factor finds it again, on any number of brokers, and no partition is reported.

docs/adr/0017-replication-factor.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.admin.handlers import (
    create_topics,
    describe_topic_partitions,
    incremental_alter_configs,
    metadata,
)
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import describe_topic_partitions as describe_schema
from kafscale.wire.schema import incremental_alter_configs as alter_schema
from kafscale.wire.schema import metadata as metadata_schema

from services.admin.tests.harness import Admin

NAME = "t"


def assigned(*brokers: int) -> list[Any]:
    return [
        create_schema.CreateTopicsRequestReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number in range(2)
    ]


async def create(admin: Admin, factor: int = -1, *, dry: bool = False, **fields: Any) -> int:
    """The factor of the answer."""
    wanted = {"name": NAME, "num_partitions": -1 if "assignments" in fields else 2} | fields
    topic = create_schema.CreateTopicsRequestTopic(replication_factor=factor, **wanted)
    request = create_schema.CreateTopicsRequest(topics=[topic], validate_only=dry)
    (made,) = (await admin.ask(create_topics, create_schema, request, 7)).topics
    assert made.error_code == 0, made
    assert (made.topic_id == bytes(16)) is dry
    return int(made.replication_factor)


async def shown(admin: Admin) -> list[list[int]]:
    """The replicas of each partition: all are in sync, and Metadata and DescribeTopicPartitions agree."""
    asked = metadata_schema.MetadataRequest(topics=[metadata_schema.MetadataRequestTopic(name=NAME)])
    (topic,) = (await admin.ask(metadata, metadata_schema, asked, 12)).topics
    wanted = describe_schema.DescribeTopicPartitionsRequest(
        topics=[describe_schema.DescribeTopicPartitionsRequestTopicRequest(name=NAME)],
        response_partition_limit=100,
    )
    (described,) = (await admin.ask(describe_topic_partitions, describe_schema, wanted, 0)).topics
    for both in zip(topic.partitions, described.partitions, strict=True):
        assert both[0].replica_nodes == both[1].replica_nodes
        for each in both:
            assert each.isr_nodes == each.replica_nodes
            assert each.leader_id == each.replica_nodes[0]
            assert each.offline_replicas == []
    return [part.replica_nodes for part in topic.partitions]


async def alter(admin: Admin, key: str, value: str) -> None:
    change = alter_schema.IncrementalAlterConfigsRequestAlterableConfig(name=key, value=value)
    resource = alter_schema.IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name=NAME, configs=[change]
    )
    request = alter_schema.IncrementalAlterConfigsRequest(resources=[resource])
    (changed,) = (await admin.ask(incremental_alter_configs, alter_schema, request, 1)).responses
    assert changed.error_code == 0


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
@pytest.mark.parametrize("factor", [1, 2, 3])
async def test_the_factor_that_was_asked_for_is_found_again(admin: Admin, brokers: int, factor: int) -> None:
    for node_id in range(1, brokers + 1):
        await admin.register(node_id)
    assert await create(admin, factor, dry=True) == factor
    assert await create(admin, factor) == factor
    for replicas in await shown(admin):
        assert len(set(replicas)) == factor
        assert len({node for node in replicas if node <= brokers}) == min(factor, brokers)


async def test_replicas_that_were_assigned_count_too(admin: Admin) -> None:
    await admin.register(1)
    assert await create(admin, assignments=assigned(4, 5, 6)) == 3
    assert [len(replicas) for replicas in await shown(admin)] == [3, 3]


async def test_without_a_factor_there_is_one_replica_or_as_many_as_must_be_in_sync(admin: Admin) -> None:
    await admin.register(1)
    assert await create(admin) == 1
    assert await shown(admin) == [[1], [1]]
    await alter(admin, "min.insync.replicas", "2")
    assert await shown(admin) == [[1, 2], [1, 2]]


async def test_a_change_of_the_topic_keeps_its_factor(admin: Admin) -> None:
    await admin.register(1)
    await create(admin, 3)
    await alter(admin, "retention.ms", "2")
    assert [len(replicas) for replicas in await shown(admin)] == [3, 3]

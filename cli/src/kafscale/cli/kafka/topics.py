"""What tools ask of topics and their configs: Metadata, CreateTopics, DeleteTopics, CreatePartitions, configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafscale.cli.kafka.client import Client, check, patiently
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_offsets,
    metadata,
)

TIMEOUT_MS: Final = 30_000
EARLIEST: Final = -2
LATEST: Final = -1
SERVERS_CHOICE: Final = -1
NO_OFFSET: Final = -1
_TOPIC_RESOURCE: Final = 2
_SET, _DELETE = 0, 1
_SOURCES: Final = {1: "topic", 2: "broker", 3: "broker", 4: "broker", 5: "default"}

Place = tuple[str, int]
"""Topic and partition."""
Row = dict[str, Any]


def of_topic(name: str) -> str:
    return f"topic '{name}'"


async def list_topics(client: Client) -> list[Row]:
    """By name: topic, topic_id, partitions."""
    answer = await client.metadata(None)
    found = [
        {"topic": topic.name or "", "topic_id": topic.topic_id.hex(), "partitions": len(topic.partitions)}
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE
    ]
    return sorted(found, key=lambda row: row["topic"])


async def find_topics(client: Client, names: Iterable[str]) -> list[metadata.MetadataResponseTopic]:
    """As Metadata has them; raises KafkaTrouble for one that is not there."""
    answer = await client.metadata(names)
    for topic in answer.topics:
        check(of_topic(topic.name or ""), topic.error_code)
    return answer.topics


async def describe_topics(client: Client, names: Sequence[str]) -> list[Row]:
    """A row for each partition: who leads it, in which epoch, and from where to where it reaches."""
    topics = await find_topics(client, names)
    places = [(topic.name or "", part.partition_index) for topic in topics for part in topic.partitions]
    starts = await offsets_at(client, places, EARLIEST)
    ends = await offsets_at(client, places, LATEST)
    return [
        {
            "topic": topic.name,
            "partition": part.partition_index,
            "leader": part.leader_id,
            "leader_epoch": part.leader_epoch,
            "start": starts[topic.name or "", part.partition_index],
            "end": ends[topic.name or "", part.partition_index],
            "replicas": ",".join(map(str, part.replica_nodes)),
        }
        for topic in topics
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]


async def offsets_at(client: Client, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    """The first offset at or after a time (ms), or EARLIEST or LATEST; NO_OFFSET where nothing is so late."""
    by_topic: dict[str, list[list_offsets.ListOffsetsRequestPartition]] = {}
    for topic, partition in places:
        asked = list_offsets.ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)
        by_topic.setdefault(topic, []).append(asked)
    if not by_topic:
        return {}
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsRequestTopic(name=name, partitions=parts)
            for name, parts in by_topic.items()
        ],
    )

    async def ask() -> dict[Place, int]:
        answer = await client.ask(list_offsets, request, 7)
        found: dict[Place, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                check(f"partition {topic.name}/{part.partition_index}", part.error_code)
                found[topic.name, part.partition_index] = part.offset
        return found

    return await patiently(ask)


async def create_topic(client: Client, name: str, partitions: int | None, configs: Mapping[str, str]) -> int:
    """How many partitions it has."""
    wanted = create_topics.CreateTopicsRequestTopic(
        name=name,
        num_partitions=SERVERS_CHOICE if partitions is None else partitions,
        replication_factor=SERVERS_CHOICE,
        assignments=[],
        configs=[
            create_topics.CreateTopicsRequestTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    answer = await client.ask(create_topics, request, 5)
    (made,) = answer.topics
    check(of_topic(name), made.error_code, made.error_message)
    return made.num_partitions


async def delete_topic(client: Client, name: str) -> None:
    request = delete_topics.DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=TIMEOUT_MS)
    answer = await client.ask(delete_topics, request, 5)
    (gone,) = answer.responses
    check(of_topic(name), gone.error_code, gone.error_message)


async def grow_topic(client: Client, name: str, partitions: int) -> None:
    wanted = create_partitions.CreatePartitionsRequestTopic(name=name, count=partitions, assignments=None)
    request = create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    answer = await client.ask(create_partitions, request, 2)
    (grown,) = answer.results
    check(of_topic(name), grown.error_code, grown.error_message)


async def describe_topic_configs(client: Client, name: str) -> list[Row]:
    """By key: key, value, source (topic, broker or default), read_only."""
    resource = describe_configs.DescribeConfigsRequestResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    answer = await client.ask(
        describe_configs, describe_configs.DescribeConfigsRequest(resources=[resource]), 4
    )
    (found,) = answer.results
    check(of_topic(name), found.error_code, found.error_message)
    rows = [
        {
            "key": config.name,
            "value": config.value,
            "source": _SOURCES.get(config.config_source, "unknown"),
            "read_only": config.read_only,
        }
        for config in found.configs
    ]
    return sorted(rows, key=lambda row: str(row["key"]))


async def alter_topic_configs(client: Client, name: str, configs: Mapping[str, str | None]) -> None:
    """Sets each key to its value, or takes it away where the value is None; the others stay."""
    changes = [
        incremental_alter_configs.IncrementalAlterConfigsRequestAlterableConfig(
            name=key, config_operation=_DELETE if value is None else _SET, value=value
        )
        for key, value in configs.items()
    ]
    resource = incremental_alter_configs.IncrementalAlterConfigsRequestResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configs=changes
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(incremental_alter_configs, request, 1)
    (done,) = answer.responses
    check(of_topic(name), done.error_code, done.error_message)

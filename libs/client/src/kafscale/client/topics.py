"""Topics, their configs and their offsets, as AdminClient reports and changes them.

AdminClient does not report the leader epoch of a partition. It is that of the log's end, as ListOffsets answers it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client, changing, patiently
from kafscale.lake.unread import Going

SERVERS_CHOICE: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
_SPECS: Final = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "broker",
    ConfigSource.DEFAULT_CONFIG: "default",
}

TopicPart = tuple[str, int]
"""Topic and partition."""
Row = dict[str, Any]


def of_topic(name: str) -> str:
    return f"topic '{name}'"


def list_topics(client: Client) -> list[Row]:
    """By name: topic, topic_id (32 hexadecimal digits), partitions."""
    topics = existing_topics(client, topic_names(client))
    return [
        {"topic": topic.name, "topic_id": _hex(topic), "partitions": len(topic.partitions)}
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def topic_names(client: Client) -> list[str]:
    with client.failing("the list of topics"):
        return sorted(client.admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics)


def _hex(topic: TopicDescription) -> str:
    return b64decode(f"{topic.topic_id}==").hex()


def existing_topics(client: Client, names: Iterable[str]) -> list[TopicDescription]:
    """Without those that do not exist (any more)."""
    with client.failing("the topics"):
        futures = _describing(client, names)
    return [future.result() for future in futures.values() if future.exception() is None]


def find_topics(client: Client, names: Iterable[str]) -> list[TopicDescription]:
    """Raises KafkaTrouble for a topic that does not exist."""
    return list(client.ask(of_topic, lambda: _describing(client, names), "the topics").values())


def _describing(client: Client, names: Iterable[str]) -> Mapping[str, Future[TopicDescription]]:
    unique = list(dict.fromkeys(names))
    return client.admin.describe_topics(TopicCollection(unique)) if unique else {}


def describe_topics(client: Client, names: Sequence[str]) -> list[Row]:
    """A row for each partition: its leader and leader epoch, its first offset and its end."""
    topics = find_topics(client, names)
    places = [(topic.name, part.id) for topic in topics for part in topic.partitions]
    starts = offsets_at(client, places, EARLIEST)
    ends = offsets_at(client, places, LATEST)
    return [
        {
            "topic": topic.name,
            "partition": part.id,
            "leader": part.leader.id if part.leader is not None else None,
            "leader_epoch": ends[topic.name, part.id].leader_epoch,
            "start": starts[topic.name, part.id].offset,
            "end": ends[topic.name, part.id].offset,
        }
        for topic in topics
        for part in sorted(topic.partitions, key=lambda part: part.id)
    ]


def bounds_of(client: Client, places: Sequence[TopicPart]) -> list[Going]:
    """All records of these partitions."""
    starts, ends = offsets_at(client, places, EARLIEST), offsets_at(client, places, LATEST)
    return [
        Going(
            topic=topic, partition=number, start=starts[topic, number].offset, end=ends[topic, number].offset
        )
        for topic, number in places
    ]


def offsets_at(
    client: Client,
    places: Iterable[TopicPart],
    time_ms: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPart, ListOffsetsResultInfo]:
    """The first offset at or after a time, or EARLIEST or LATEST. The offset is NO_OFFSET if no record is so late. The
    latest of READ_COMMITTED is the last stable offset."""
    spec = _SPECS.get(time_ms) or OffsetSpec.for_timestamp(time_ms)
    asked = list(places)

    def send() -> Mapping[TopicPartition, Future[ListOffsetsResultInfo]]:
        wanted = {TopicPartition(topic, number): spec for topic, number in asked}
        return client.admin.list_offsets(wanted, isolation_level=isolation) if wanted else {}

    def ask() -> dict[TopicPart, ListOffsetsResultInfo]:
        found = client.ask(lambda part: f"partition {part.topic}/{part.partition}", send, "the partitions")
        return {(part.topic, part.partition): info for part, info in found.items()}

    return patiently(ask)


def create_topic(client: Client, name: str, partitions: int | None, configs: Mapping[str, str]) -> int | None:
    """The number of partitions; None if Metadata does not have the topic yet."""
    count = SERVERS_CHOICE if partitions is None else partitions

    def send() -> Mapping[str, Future[Any]]:
        return client.admin.create_topics([NewTopic(name, count, SERVERS_CHOICE, config=dict(configs))])

    with changing():
        client.ask_one(of_topic(name), send)
    if partitions is not None:
        return partitions
    return next((len(found.partitions) for found in existing_topics(client, [name])), None)


@changing()
def delete_topic(client: Client, name: str) -> None:
    client.ask_one(of_topic(name), lambda: client.admin.delete_topics([name]))


@changing()
def add_partitions(client: Client, name: str, partitions: int) -> None:
    """`partitions` is the new total."""
    client.ask_one(of_topic(name), lambda: client.admin.create_partitions([NewPartitions(name, partitions)]))


def describe_topic_configs(client: Client, name: str) -> list[Row]:
    """By key: key, value, source (topic, broker or default), read_only."""
    found: dict[str, ConfigEntry] = client.ask_one(
        of_topic(name), lambda: client.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
    )
    return [
        {
            "key": key,
            "value": found[key].value,
            "source": _SOURCES.get(ConfigSource(found[key].source), "unknown"),
            "read_only": found[key].is_read_only,
        }
        for key in sorted(found)
    ]


@changing()
def alter_topic_configs(client: Client, name: str, configs: Mapping[str, str | None]) -> None:
    """Sets each key to its value, or unsets it if the value is None. Other keys do not change."""

    def send() -> Mapping[ConfigResource, Future[Any]]:
        entries = [
            ConfigEntry(
                key,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        return client.admin.incremental_alter_configs([resource])

    client.ask_one(of_topic(name), send)


@changing()
def delete_before(client: Client, offsets: Mapping[TopicPart, int]) -> None:
    """Moves the first offset of each partition. Raises KafkaTrouble; other partitions may have changed then."""

    def send() -> Mapping[TopicPartition, Future[Any]]:
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        return client.admin.delete_records(wanted) if wanted else {}

    client.ask(lambda part: f"partition {part.topic}/{part.partition}", send, "the partitions")

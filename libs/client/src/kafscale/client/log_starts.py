"""DeleteRecords: moves the first offset of logs."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition
from kafscale.client.admin_client import Client
from kafscale.client.topics import TopicPart


def delete_before(client: Client, offsets: Mapping[TopicPart, int]) -> dict[TopicPart, int]:
    """The new first offset of each partition. Raises KafkaTrouble; other partitions may have changed then."""
    wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    futures = client.admin.delete_records(wanted) if wanted else {}
    found = client.ask(lambda part: f"partition {part.topic}/{part.partition}", futures)
    return {(part.topic, part.partition): deleted.low_watermark for part, deleted in found.items()}

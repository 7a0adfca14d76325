"""Sends records, and waits until each is durable or refused.

Laws: a record is sent as it was checked, once (the producer is idempotent), with acks=all. If no answer comes, the page
says that the outcome is unknown, and not that it failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from kafscale.client.admin_client import Client, KafkaTrouble, Refusal, trouble_of
from kafscale.client.json_lines import Record
from kafscale.client.topics import of_topic
from kafscale.console.records.page import numbers_of

DeliveryCallback = Callable[[KafkaError | None, Any], None]
DELIVERY_TIMEOUT_S: Final = 20.0
SENT_BYTES_MAX: Final = 8 << 20
_POLL_S: Final = 0.1
_ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides
_NOW: Final = 0  # librdkafka's timestamp for the time of now
_UNKNOWN: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._PURGE_INFLIGHT)


def send(client: Client, topic: str, record: Record) -> tuple[int, int]:
    """Partition and offset. Raises KafkaTrouble and Problem."""
    (sent,) = send_all(client, topic, [record])
    if isinstance(sent, KafkaTrouble):
        raise sent
    return sent


def send_all(client: Client, topic: str, records: Sequence[Record]) -> list[tuple[int, int] | KafkaTrouble]:
    """Of each its partition and offset, or why it has none. Those of one partition are written in their order. Raises
    KafkaTrouble and Problem if nothing was sent."""
    for partition in dict.fromkeys(record.partition for record in records):
        numbers_of(client, topic, partition)  # librdkafka would wait for a partition that does not exist
    refused = Refusal(client.bootstrap)
    producer = Producer(
        {
            **client.settings(refused),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # of Kafka's own producer
            "linger.ms": 0,
            "message.max.bytes": 2 * SENT_BYTES_MAX,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
        }
    )
    found: list[tuple[int, int] | KafkaTrouble] = [_unknown(topic)] * len(records)
    for number, record in enumerate(records):
        try:
            _hand_over(client, producer, topic, record, partial(_take, found, topic, number))
        except KafkaTrouble as trouble:  # others may be under way
            found[number] = trouble
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S + 1
    with client.failing(of_topic(topic)):
        while producer.flush(_POLL_S) and time.monotonic() < deadline:
            if not any(isinstance(each, tuple) for each in found):  # else some are written
                refused.check()
    return list(found)


def _hand_over(
    client: Client, producer: Producer, topic: str, record: Record, said: DeliveryCallback
) -> None:
    """To librdkafka. Raises KafkaTrouble if it refuses the record."""
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    with client.failing(of_topic(topic)):
        producer.produce(
            topic,
            record.value,
            record.key,
            _ANY_PARTITION if record.partition is None else record.partition,
            said,
            timestamp=_NOW if record.timestamp_ms is None else record.timestamp_ms,
            headers=headers or None,
        )


def _take(
    found: list[tuple[int, int] | KafkaTrouble],
    topic: str,
    number: int,
    error: KafkaError | None,
    message: Any,
) -> None:
    if error is None:
        found[number] = message.partition(), message.offset()
    elif error.code() not in _UNKNOWN:
        found[number] = trouble_of(of_topic(topic), error)


def _unknown(topic: str) -> KafkaTrouble:
    return KafkaTrouble(
        f"no answer within {DELIVERY_TIMEOUT_S:.0f} s: the record may have been written or not; "
        f"look at the newest records of {of_topic(topic)}"
    )

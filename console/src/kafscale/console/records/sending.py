"""Sends records, and waits until each is durable or refused.

Laws: a record is sent as it was checked, once (the producer is idempotent), with acks=all. If no answer comes, the page
says that the outcome is unknown, and not that it failed; also if the login is refused after librdkafka has a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from kafscale.client.admin_client import (
    CONNECT_TIMEOUT_S,
    Client,
    KafkaTrouble,
    Refusal,
    trouble_of,
    undecided,
)
from kafscale.client.json_lines import Record
from kafscale.client.topics import of_topic
from kafscale.console.records.page import numbers_of

DeliveryCallback = Callable[[KafkaError | None, Any], None]
DELIVERY_TIMEOUT_S: Final = 20.0
SENT_BYTES_MAX: Final = 8 << 20
_POLL_S: Final = 0.1
_METADATA_S: Final = 1.0
_ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides
_NOW: Final = 0  # librdkafka's timestamp for the time of now


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
    _be_let_in(client, producer, topic, refused)
    found: list[tuple[int, int] | KafkaTrouble | None] = [None] * len(records)
    for number, record in enumerate(records):
        try:
            _hand_over(client, producer, topic, record, partial(_take, found, topic, number))
        except KafkaTrouble as trouble:  # others may be under way
            found[number] = trouble
    with client.failing(of_topic(topic)):
        silence = undecided(_silence(producer, refused, found), _perhaps(topic))
    assert silence is not None, "nobody knows what became of a record without an answer"
    return [silence if each is None else each for each in found]


def _silence(
    producer: Producer, refused: Refusal, found: Sequence[tuple[int, int] | KafkaTrouble | None]
) -> KafkaTrouble:
    """Waits for the outcomes. Why those that are still None have none."""
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S + 1
    while producer.flush(_POLL_S) and time.monotonic() < deadline:
        if not any(isinstance(each, tuple) for each in found):  # else others may still be written
            try:
                refused.check()
            except KafkaTrouble as trouble:
                return trouble
    return KafkaTrouble(f"no answer within {DELIVERY_TIMEOUT_S:.0f} s")


def _be_let_in(client: Client, producer: Producer, topic: str, refused: Refusal) -> None:
    """Waits until a broker has taken the producer's login, so that a refusal here says surely that nothing was sent.
    Raises KafkaTrouble."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    with client.failing(of_topic(topic)):
        while True:
            try:
                producer.list_topics(topic, _METADATA_S)
                return
            except KafkaException:
                producer.poll(0)  # calls the `error_cb`
                refused.check()
                if time.monotonic() > deadline:
                    raise


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
    found: list[tuple[int, int] | KafkaTrouble | None],
    topic: str,
    number: int,
    error: KafkaError | None,
    message: Any,
) -> None:
    if error is None:
        found[number] = message.partition(), message.offset()
    else:
        trouble = trouble_of(of_topic(topic), error)
        found[number] = undecided(trouble, _perhaps(topic)) or trouble


def _perhaps(topic: str) -> str:
    return f"the record may have been written or not: look at the newest records of {of_topic(topic)}"

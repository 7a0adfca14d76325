"""Sends one record, and waits until it is durable or refused.

Laws: it is sent as it was checked, once (the producer is idempotent), with acks=all. If no answer comes, the page says
that the outcome is unknown, and not that it failed.
"""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from kafscale.client.admin_client import Client, KafkaTrouble, Refusal, trouble_of
from kafscale.client.json_lines import Record
from kafscale.client.topics import of_topic
from kafscale.console.records.page import numbers_of

DELIVERY_TIMEOUT_S: Final = 20.0
SENT_BYTES_MAX: Final = 8 << 20
_POLL_S: Final = 0.1
_ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides
_NOW: Final = 0  # librdkafka's timestamp for the time of now
_UNKNOWN: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._PURGE_INFLIGHT)


def send(client: Client, topic: str, record: Record) -> tuple[int, int]:
    """Partition and offset. Raises KafkaTrouble and Problem."""
    numbers_of(client, topic, record.partition)  # librdkafka would wait for a partition that does not exist
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
    said: list[tuple[KafkaError | None, Any]] = []
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    with client.failing(of_topic(topic)):
        producer.produce(
            topic,
            record.value,
            record.key,
            _ANY_PARTITION if record.partition is None else record.partition,
            lambda error, message: said.append((error, message)),
            timestamp=_NOW if record.timestamp_ms is None else record.timestamp_ms,
            headers=headers or None,
        )
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S + 1
        while producer.flush(_POLL_S) and time.monotonic() < deadline:
            refused.check()
    if not said or (said[0][0] is not None and said[0][0].code() in _UNKNOWN):
        raise KafkaTrouble(
            f"no answer within {DELIVERY_TIMEOUT_S:.0f} s: the record may have been written or not; "
            f"look at the newest records of {of_topic(topic)}"
        )
    error, message = said[0]
    if error is not None:
        raise trouble_of(of_topic(topic), error)
    return message.partition(), message.offset()

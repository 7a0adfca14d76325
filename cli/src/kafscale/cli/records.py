"""`kafscale produce` and `kafscale consume`: lines in, lines out, on a real Kafka client.

They use confluent-kafka as a user's program does, so they show what a client sees.
Without a group, `consume` assigns the partitions itself and commits nothing. With a group it is an ordinary member, and
it commits an offset after it has printed the record.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafscale.cli.kafka.client import REFUSALS, refusal
from kafscale.cli.options import Codec
from kafscale.cli.targets import Place

DELIVERY_TIMEOUT_S = 60.0
QUERY_TIMEOUT_S = 15.0
POLL_S = 0.2
UNSENT_MAX = 10_000
ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides


class ClientTrouble(Exception):
    """The client failed. The text says at what, and why."""


@dataclass(slots=True)
class Delivered:
    """The result of a run of `produce`."""

    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error.str())


@dataclass(slots=True)
class _Errors:
    """librdkafka retries lost connections: they show as a failed delivery or an empty poll. A refusal is final."""

    place: Place
    refused: str | None = None

    def on_error(self, error: KafkaError) -> None:
        if error.code() in REFUSALS and self.refused is None:
            self.refused = error.str()

    def check(self) -> None:
        """Raises ClientTrouble if the server does not let this client in."""
        if self.refused is not None:
            raise ClientTrouble(refusal(self.place.bootstrap, self.refused))

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.place.bootstrap,
            "client.id": "kafscale-cli",
            "log_level": 0,
            "error_cb": self.on_error,
            **self.place.security.librdkafka(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePlan:
    topic: str
    partition: int | None
    key_separator: str | None
    headers: Mapping[str, str]
    codec: Codec


def produce_lines(place: Place, plan: ProducePlan, lines: Iterable[bytes]) -> Delivered:
    """Sends one record per line and waits until each is acknowledged or has failed. Raises ClientTrouble."""
    errors = _Errors(place)
    producer = Producer(
        {
            **errors.settings(),
            "enable.idempotence": True,
            "compression.type": plan.codec.value,
            "linger.ms": 5,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
        }
    )
    delivered = Delivered()
    partition = ANY_PARTITION if plan.partition is None else plan.partition
    for line in lines:
        key, value = _split(line.rstrip(b"\n"), plan.key_separator)
        while len(producer) >= UNSENT_MAX:
            errors.check()
            producer.poll(POLL_S)
        producer.produce(
            plan.topic,
            value,
            key,
            partition,
            delivered.on_delivery,
            headers=dict(plan.headers) or None,
        )
        producer.poll(0)
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while (unsent := producer.flush(POLL_S)) and time.monotonic() < deadline:
        errors.check()
    if unsent:
        delivered.failures.append(f"{unsent} records were not acknowledged within {DELIVERY_TIMEOUT_S:.0f} s")
    return delivered


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumePlan:
    topic: str
    group: str | None
    partition: int | None
    start: str  # "beginning", "end", an offset, or "-N" for the last N of each partition
    stop_at_end: bool
    count_max: int | None
    as_json: bool
    with_keys: bool


@dataclass(slots=True)
class _Reading:
    """Partitions that are not read to their end yet. `given` is true once they are assigned."""

    given: bool = False
    partitions: set[int] = field(default_factory=set)

    def take(self, _consumer: Consumer, more: Iterable[TopicPartition]) -> None:
        self.given = True
        self.partitions |= {part.partition for part in more}

    def lose(self, _consumer: Consumer, gone: Iterable[TopicPartition]) -> None:
        self.partitions -= {part.partition for part in gone}


def consume_lines(place: Place, plan: ConsumePlan) -> Iterator[bytes]:
    """Yields one formatted line per record, forever or until the plan ends it. Raises ClientTrouble."""
    errors = _Errors(place)
    consumer = Consumer(
        {
            **errors.settings(),
            "group.id": plan.group or "kafscale-cli",
            "enable.auto.commit": plan.group is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if plan.group is None else _reset(plan),
        }
    )
    reading = _Reading()
    try:
        if plan.group is None:
            assignment = _assignment(consumer, plan, errors)
            consumer.assign(assignment)
            reading.take(consumer, assignment)
        else:
            consumer.subscribe(
                [plan.topic], on_assign=reading.take, on_revoke=reading.lose, on_lost=reading.lose
            )
        yield from _poll(consumer, plan, reading, errors)
    finally:
        consumer.close()


def _reset(plan: ConsumePlan) -> str:
    """Where a member starts in a partition for which its group has no committed offset."""
    if plan.partition is not None:
        raise ClientTrouble("a group assigns the partitions itself; use either --partition or --group")
    resets = {"beginning": "earliest", "end": "latest"}
    if plan.start not in resets:
        raise ClientTrouble(
            f"with --group, --offset is beginning or end (for what the group has not committed), not '{plan.start}'"
        )
    return resets[plan.start]


def _assignment(consumer: Consumer, plan: ConsumePlan, errors: _Errors) -> list[TopicPartition]:
    try:
        metadata = consumer.list_topics(plan.topic, timeout=QUERY_TIMEOUT_S).topics[plan.topic]
    except KafkaException as trouble:
        consumer.poll(0)  # librdkafka says why it has no connection
        errors.check()
        raise ClientTrouble(f"no answer about topic '{plan.topic}': {trouble.args[0].str()}") from trouble
    if metadata.error is not None:
        raise ClientTrouble(f"topic '{plan.topic}': {metadata.error.str()}")
    wanted = sorted(metadata.partitions) if plan.partition is None else [plan.partition]
    if not set(wanted) <= set(metadata.partitions):
        raise ClientTrouble(f"topic '{plan.topic}' has no partition {plan.partition}")
    return [TopicPartition(plan.topic, part, _start_offset(consumer, plan, part)) for part in wanted]


def _start_offset(consumer: Consumer, plan: ConsumePlan, partition: int) -> int:
    if plan.start == "beginning":
        return int(OFFSET_BEGINNING)
    if plan.start == "end":
        return int(OFFSET_END)
    try:
        number = int(plan.start)
    except ValueError:
        raise ClientTrouble(f"--offset takes beginning, end, a number or -N, not '{plan.start}'") from None
    if number >= 0:
        return number
    low, high = consumer.get_watermark_offsets(TopicPartition(plan.topic, partition), timeout=QUERY_TIMEOUT_S)
    return max(int(low), int(high) + number)


def _poll(consumer: Consumer, plan: ConsumePlan, reading: _Reading, errors: _Errors) -> Iterator[bytes]:
    left = plan.count_max if plan.count_max is not None else sys.maxsize
    while left > 0 and not (plan.stop_at_end and reading.given and not reading.partitions):
        message = consumer.poll(POLL_S)
        if message is None:
            errors.check()
            continue
        error = message.error()
        if error is None:
            left -= 1
            yield format_record(message, plan)
            if plan.group is not None:
                consumer.store_offsets(message=message)
        elif error.code() == KafkaError._PARTITION_EOF:
            reading.partitions.discard(message.partition() or 0)
        elif not error.retriable():
            raise ClientTrouble(error.str())


def format_record(message: Message, plan: ConsumePlan) -> bytes:
    """A record as the line that `consume` prints, without the line end."""
    if plan.as_json:
        return json.dumps(_fields(message)).encode()
    value = message.value() or b""
    if not plan.with_keys:
        return value
    return (message.key() or b"") + b"\t" + value


def _fields(message: Message) -> dict[str, object]:
    def text(data: bytes | str | None) -> str | None:
        return data.decode(errors="replace") if isinstance(data, bytes) else data

    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": text(message.key()),
        "value": text(message.value()),
        "headers": [[header[0], text(header[1])] for header in message.headers() or []],
    }

"""Sends records on a real producer, as a user's program does, and waits until each is durable or has failed.

Law: the result counts every record that was acknowledged, whatever ends the run, also a login that is refused under
way. A record without an answer may have been written, so it does not count as failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafscale.cli.options import Codec
from kafscale.client.admin_client import Client, KafkaTrouble, Refusal, trouble_of, undecided
from kafscale.client.json_lines import Headers, LineWrong, Record, from_line
from kafscale.client.topics import existing_topics, of_topic
from kafscale.operations.positions import chosen

DELIVERY_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2
UNSENT_MAX: Final = 10_000
ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides
NOW: Final = 0  # librdkafka's timestamp for the time of now
RECORD_BYTES_MAX: Final = 64 << 20
"""The server has its own limit, which is lower."""
LINE_BYTES_MAX: Final = 2 * RECORD_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePlan:
    """What an option gives holds for every record. `topic` None: each line of JSON names its own."""

    topic: str | None
    is_json: bool
    partition: int | None
    keeps_partition: bool
    """Of lines of JSON: send a record to the partition that its line names."""
    key: bytes | None
    key_separator: bytes | None
    empty_is_tombstone: bool
    timestamp_ms: int | None
    headers: Headers
    codec: Codec


@dataclass(slots=True)
class Delivered:
    """The result of a run of `produce`. `unanswered`: records that may have been written or not. `silence`: why they
    have no answer, or why the login was refused. `stopped`: from where on nothing was sent."""

    acknowledged: int = 0
    failed: int = 0
    first_failure: str = ""
    unanswered: int = 0
    silence: KafkaTrouble | None = None
    stopped: str | None = None

    def fail(self, trouble: KafkaTrouble) -> None:
        self.first_failure = self.first_failure or str(trouble)
        self.failed += 1

    def lose(self, trouble: KafkaTrouble, count: int) -> None:
        self.silence = self.silence or trouble
        self.unanswered += count


def produce(
    client: Client, plan: ProducePlan, lines: IO[bytes], on_record: Callable[[Record], None]
) -> Delivered:
    """Sends one record per line. `on_record` gets each one that is durable. Raises KafkaTrouble and PositionWrong if
    nothing was sent."""
    _check_partition(client, plan)
    refused, delivered = Refusal(client.bootstrap), Delivered()
    producer = Producer(
        {
            **client.settings(refused),
            "enable.idempotence": True,
            "compression.type": plan.codec.value,
            "linger.ms": 5,
            "message.max.bytes": RECORD_BYTES_MAX,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
        }
    )

    def on_delivery(error: KafkaError | None, message: Message[Any, Any]) -> None:
        if error is None:
            delivered.acknowledged += 1
            on_record(Record(topic=message.topic(), partition=message.partition(), offset=message.offset()))
            return
        trouble = trouble_of(of_topic(message.topic() or ""), error)
        if undecided(trouble) is None:
            delivered.fail(trouble)
        else:
            delivered.lose(trouble, 1)

    try:
        for line, record in enumerate(records_of(plan, lines), 1):
            try:
                _send(producer, record, refused, delivered, on_delivery)
            except KafkaTrouble as trouble:
                delivered.lose(trouble, 0)
                delivered.stopped = f"nothing was sent from line {line} on"
                break
    except LineWrong as wrong:
        delivered.stopped = f"{wrong}; nothing was sent from this line on"
    _flush(producer, refused, delivered)
    return delivered


def _check_partition(client: Client, plan: ProducePlan) -> None:
    """librdkafka would wait half a minute for a partition that does not exist. A topic may come into being yet."""
    if plan.topic is not None and plan.partition is not None:
        for topic in existing_topics(client, [plan.topic]):
            chosen(topic.name, (part.id for part in topic.partitions), frozenset({plan.partition}))


def _send(
    producer: Producer,
    record: Record,
    refused: Refusal,
    delivered: Delivered,
    on_delivery: Callable[[Any, Any], None],
) -> None:
    """Raises KafkaTrouble if it would wait for room, and the login was refused: another front door may still answer."""
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    while len(producer) >= UNSENT_MAX:
        producer.poll(POLL_S)
        refused.check()
    while True:
        try:
            producer.produce(
                record.topic or "",
                record.value,
                record.key,
                ANY_PARTITION if record.partition is None else record.partition,
                on_delivery,
                timestamp=NOW if record.timestamp_ms is None else record.timestamp_ms,
                headers=headers or None,
            )
        except BufferError:  # librdkafka's queue has a limit in bytes too
            producer.poll(POLL_S)
            refused.check()
            continue
        except KafkaException as exception:
            delivered.fail(trouble_of(of_topic(record.topic or ""), exception.args[0]))
        producer.poll(0)
        return


def _flush(producer: Producer, refused: Refusal, delivered: Delivered) -> None:
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while (unsent := producer.flush(POLL_S)) and time.monotonic() < deadline:
        try:
            refused.check()
        except KafkaTrouble as trouble:
            delivered.lose(trouble, unsent)
            return
    if unsent:
        delivered.lose(KafkaTrouble(f"no answer within {DELIVERY_TIMEOUT_S:.0f} s"), unsent)


def records_of(plan: ProducePlan, lines: IO[bytes]) -> Iterator[Record]:
    """Raises LineWrong, with the number of the line."""
    number = 0
    while line := lines.readline(LINE_BYTES_MAX):
        number += 1
        try:
            if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
                raise LineWrong(f"longer than {LINE_BYTES_MAX} bytes")
            yield record_of(plan, line.removesuffix(b"\n"))
        except LineWrong as wrong:
            raise LineWrong(f"line {number}: {wrong}") from wrong


def record_of(plan: ProducePlan, line: bytes) -> Record:
    """The record of a line. Raises LineWrong."""
    record = from_line(line) if plan.is_json else _split(plan, line)
    topic = plan.topic or record.topic
    if topic is None:
        raise LineWrong("no topic; name one in the line or as the argument")
    kept = record.partition if plan.keeps_partition else None
    return replace(
        record,
        topic=topic,
        partition=kept if plan.partition is None else plan.partition,
        timestamp_ms=record.timestamp_ms if plan.timestamp_ms is None else plan.timestamp_ms,
        key=record.key if plan.key is None else plan.key,
        headers=record.headers + plan.headers,
    )


def _split(plan: ProducePlan, line: bytes) -> Record:
    key, value = None, line
    if plan.key_separator is not None and plan.key_separator in line:
        key, _, value = line.partition(plan.key_separator)
    return Record(key=key, value=None if plan.empty_is_tombstone and not value else value)

"""Producers that go on through faults, and a reader that reads everything: the two ends of a history."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafscale.wire.errors import ErrorCode

from e2e.checkers.history import History, Sent

MESSAGE_TIMEOUT_MS = 600_000
IN_FLIGHT_MAX = 500
RECORDS_PER_S = 200
"""Of each producer. Two cores are for many interleavings here, not for many records."""
BUSY_PER_S = 500
"""Where the tail of each head must have slices all the time."""
BURST = 10
FLUSH_TIMEOUT_S = 120.0
SILENCE_MAX_S = 60.0
BOUNDS_WITHIN_S = 60.0
READ_SLICE_S = 0.2


@dataclass(slots=True)
class Load:
    """Writes to every partition of a topic, round robin, until stopped. Every outcome goes into `history`."""

    bootstrap: str
    topic: str
    partitions: int
    history: History
    per_s: int = RECORDS_PER_S
    """Records of each producer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the clients: how they log in."""
    on_ack: Callable[[str, int], None] = lambda _producer, _partition: None
    """Called after each acknowledgement, in the thread of its producer."""
    errors: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    """What the library reported of connections; it goes on by itself."""
    _counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    _last_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _silence_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, name: str, *, idempotent: bool) -> None:
        if idempotent:
            self.history.idempotent.add(name)
        thread = threading.Thread(target=self._produce, args=(name, idempotent), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Waits until every record has an outcome."""
        self._stop.set()
        for thread in self._threads:
            thread.join(FLUSH_TIMEOUT_S + 10)
            assert not thread.is_alive(), f"producer {thread.name} does not come to an end"

    def acknowledged(self) -> int:
        with self._lock:
            return len(self.history.acknowledged)

    def names(self) -> list[str]:
        """The producers."""
        return [thread.name for thread in self._threads]

    def going_on(self) -> dict[tuple[str, int], int]:
        """(producer, partition) -> how many of its records are acknowledged."""
        with self._lock:
            return dict(self._counts)

    def silence_s(self) -> float:
        """The longest time for which a producer had no acknowledgement on a partition, while all go on."""
        with self._lock:
            now = time.monotonic()
            return max([self._silence_s, *(now - last for last in self._last_s.values())])

    def so_far(self) -> History:
        """A copy to check while producers go on: acknowledgements first, as more may be sent meanwhile."""
        with self._lock:
            acknowledged = dict(self.history.acknowledged)
            return History(set(self.history.idempotent), list(self.history.sent), acknowledged)

    def _produce(self, name: str, idempotent: bool) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._hear,
                "log_level": 0,
                **self.settings,
            }
        )
        try:
            self._send_until_stopped(producer, name)
        except KafkaException as fatal:  # an idempotent producer ends for good, for one, at a gap
            with self._lock:
                self.errors.append(f"{name} gave up: {fatal}")
        producer.flush(FLUSH_TIMEOUT_S)

    def _send_until_stopped(self, producer: Producer, name: str) -> None:
        number = 0
        while not self._stop.wait(BURST / self.per_s):
            producer.poll(0)
            if len(producer) >= IN_FLIGHT_MAX:
                continue
            for _ in range(BURST):
                self._send(producer, Sent(name, number, number % self.partitions))
                number += 1

    def _send(self, producer: Producer, sent: Sent) -> None:
        with self._lock:
            self.history.sent.append(sent)
        producer.produce(self.topic, sent.value, partition=sent.partition, on_delivery=self._outcome(sent))

    def _outcome(self, sent: Sent) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                if error is None:
                    offset = message.offset()
                    assert offset is not None
                    self.history.acknowledged[sent] = offset
                    self._note(sent.producer, sent.partition)
                else:
                    # librdkafka cannot always distinguish a failure from an unknown outcome, so none counts as failed.
                    self.errors.append(error.str())

        return delivered

    def _note(self, producer: str, partition: int) -> None:
        """An acknowledgement."""
        now, pair = time.monotonic(), (producer, partition)
        self._counts[pair] += 1
        self._silence_s = max(self._silence_s, now - self._last_s.get(pair, now))
        self._last_s[pair] = now
        self.on_ack(producer, partition)

    def _hear(self, error: KafkaError) -> None:
        """Brokers go away in these tests; librdkafka reconnects by itself."""
        with self._lock:
            self.heard.append(error.str())


def read_everything(
    bootstrap: str, topic: str, partitions: int, settings: Mapping[str, Any] | None = None
) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of the topic from the log starts up to the high watermarks, per partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
            **(settings or {}),
        }
    )
    try:
        found = {
            partition: bounds(consumer, TopicPartition(topic, partition)) for partition in range(partitions)
        }
        ends = {partition: end for partition, (_, end) in found.items()}
        counts = {partition: end - start for partition, (start, end) in found.items()}
        log: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in ends}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        deadline = time.monotonic() + SILENCE_MAX_S
        while any(len(log[partition]) < count for partition, count in counts.items()):
            read = {partition: len(records) for partition, records in log.items()}
            assert time.monotonic() < deadline, (
                f"records are missing between log starts and high watermarks {found}: {read}"
            )
            # It waits for that many messages or the whole timeout, so the timeout is short.
            for message in consumer.consume(5000, timeout=READ_SLICE_S):
                deadline = time.monotonic() + SILENCE_MAX_S  # a long log may take long, as long as it comes
                if message.error():
                    raise KafkaException(message.error())
                partition, offset = message.partition() or 0, message.offset() or 0
                if offset < ends[partition]:  # producers may go on while we read
                    log[partition].append((offset, message.value() or b""))
        return log
    finally:
        consumer.close()


def bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Log start and high watermark. Java's consumer retries retriable errors; librdkafka's call does not."""
    deadline = time.monotonic() + BOUNDS_WITHIN_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=BOUNDS_WITHIN_S)
        except KafkaException as failed:
            code = failed.args[0].code()
            if code < 0 or not ErrorCode(code).retriable or time.monotonic() > deadline:
                raise
            consumer.poll(READ_SLICE_S)

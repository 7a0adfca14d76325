"""Clients that produce or consume as fast as they may, and the rate at which their bytes arrive."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORD_BYTES = 1_000
SIZED = {"batch.size": 8_000, "linger.ms": 20, "compression.type": "none"}
"""Requests of some records each: many in a second, also at a low rate."""
QUEUED_MAX = 2_000
PAUSE_S = 0.3
"""A longer pause separates bursts."""
END_TIMEOUT_S = 90.0

Arrival = tuple[float, int]
"""A time, and the bytes that arrived at it."""


def steady_rate(arrivals: list[Arrival], since: float) -> float:
    """Bytes per second from the first burst that begins at `since` or later to the last one, which is not counted.

    The quotas of Kafka allow bursts, so an interval that ends in the middle of one says little. Without bursts, the
    interval ends with the last arrival.
    """
    later = [one for one in arrivals if one[0] >= since]
    assert len(later) > 1, "too few bytes arrived"
    begins = [later[0][0], *(b[0] for a, b in pairwise(later) if b[0] - a[0] > PAUSE_S)]
    begin = begins[1] if len(begins) > 2 else begins[0]
    end = begins[-1] if len(begins) > 2 else later[-1][0]
    return sum(size for at, size in later if begin <= at < end) / (end - begin)


@dataclass(slots=True)
class _Running(ABC):
    bootstrap: str
    topic: str
    client_id: str
    partition: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(END_TIMEOUT_S)

    @abstractmethod
    def _run(self) -> None:
        """Until `_stop` is set: in a thread."""

    def rate_over(self, seconds: float, after_s: float) -> float:
        """Of `seconds` that begin `after_s` after the call."""
        since = time.monotonic() + after_s
        self._stop.wait(after_s + seconds)
        assert self.errors == []
        return steady_rate(list(self.arrivals), since)


class PacedProducer(_Running):
    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "client.id": self.client_id, **SIZED})
        value = bytes(RECORD_BYTES)
        while not self._stop.is_set():
            if len(producer) < QUEUED_MAX:
                producer.produce(self.topic, value, partition=self.partition, on_delivery=self._delivered)
            else:
                producer.poll(0.01)
        producer.purge()
        producer.flush(END_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.arrivals.append((time.monotonic(), RECORD_BYTES))
        elif error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.errors.append(str(error))


class PacedConsumer(_Running):
    """From the beginning of the topic, again and again."""

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": self.client_id,
                "group.id": f"of-{self.client_id}",
                "enable.auto.commit": False,
                "queued.min.messages": 1,
                "enable.partition.eof": True,
            }
        )
        start = TopicPartition(self.topic, self.partition, 0)
        consumer.assign([start])
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.05):
                error = message.error()
                if error is None:
                    self.arrivals.append((time.monotonic(), RECORD_BYTES))
                elif error.code() == KafkaError._PARTITION_EOF:
                    consumer.seek(start)
                else:
                    self.errors.append(str(error))
        consumer.close()


def filled(bootstrap: str, topic: str, records: int) -> None:
    """The topic has this many records in its only partition."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, **SIZED})
    for _ in range(records):
        producer.produce(topic, bytes(RECORD_BYTES), partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(END_TIMEOUT_S) == 0
    assert failed == []

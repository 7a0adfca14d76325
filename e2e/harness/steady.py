"""A producer and a consumer that must notice nothing: one record after the other, read in order while it goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from e2e.harness.services import until

PAUSE_S = 0.1  # a log that grows fast has an index in memory that grows, and the run would measure that
POLL_S = 0.2
END_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Steady:
    """For one partition. `errors` holds all errors of both, lost connections included."""

    bootstrap: str
    topic: str
    errors: list[str] = field(default_factory=list)
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    _sending: threading.Event = field(default_factory=threading.Event)
    _reading: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Both go on when this returns."""
        for run in (self._produce, self._consume):
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            self._threads.append(thread)
        until("the bystanders go on", lambda: self.read > 0 or bool(self.errors))

    def stop(self) -> None:
        """When every record has been acknowledged and read."""
        self._sending.set()
        self._threads[0].join(END_TIMEOUT_S)
        until("everything is read", lambda: self.read >= self.sent or bool(self.errors), END_TIMEOUT_S)
        self._reading.set()
        self._threads[1].join(END_TIMEOUT_S)

    def _heard(self, error: KafkaError) -> None:
        self.errors.append(error.str())

    def _settings(self) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap, "error_cb": self._heard, "log_level": 0}

    def _produce(self) -> None:
        producer = Producer({**self._settings(), "enable.idempotence": True, "linger.ms": 1})
        while not self._sending.wait(PAUSE_S):
            producer.produce(self.topic, str(self.sent).encode(), partition=0, on_delivery=self._delivered)
            self.sent += 1
            producer.poll(0)
        producer.flush(END_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._heard(error)
        elif message.offset() != self.acknowledged:
            self.errors.append(f"record {self.acknowledged} was given offset {message.offset()}")
        self.acknowledged += 1

    def _consume(self) -> None:
        consumer = Consumer({**self._settings(), "group.id": "steady", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        while not self._reading.is_set():
            message = consumer.poll(POLL_S)
            if message is not None:
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._heard(error)
        elif message.value() != str(self.read).encode():
            self.errors.append(f"{message.value()!r} was read where {self.read} was due")
        self.read += 1

"""A client that creates topics all the time with a Kafka library, and retries retriable errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.services import until

CALL_TIMEOUT_S = 20.0
PAUSE_S = 0.5
END_TIMEOUT_S = 90.0
AGAIN = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
}
"""The outcome is unknown, and a retry is safe. Java's client retries REQUEST_TIMED_OUT by itself."""


@dataclass(slots=True)
class Creator:
    """Topics `created` are there for certain; `errors` are answers with which a tool would have ended."""

    bootstrap: str
    prefix: str
    pause_s: float = PAUSE_S
    created: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def working(self) -> Iterator[None]:
        """In the block; afterwards every topic that was made is listed."""
        thread = threading.Thread(target=self._work, name="creator", daemon=True)
        thread.start()
        try:
            self.goes_on()
            yield
            self.goes_on()
        finally:
            self._stop.set()
            thread.join(END_TIMEOUT_S)
        assert self.errors == [], self.errors
        assert set(self.created) <= set(self._client().list_topics(timeout=CALL_TIMEOUT_S).topics)

    def goes_on(self) -> None:
        """Waits for one more topic."""
        before = len(self.created)
        until("a topic is made", lambda: len(self.created) > before or bool(self.errors), END_TIMEOUT_S)
        assert self.errors == [], self.errors

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _work(self) -> None:
        admin = self._client()
        while not self._stop.wait(self.pause_s):
            name = f"{self.prefix}-{len(self.created)}"
            error = self._create(admin, name)
            # A call whose answer was lost may have made it.
            if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self.created.append(name)
            elif not error.retriable() and error.code() not in AGAIN:
                self.errors.append(f"{name}: {error}")
                return

    @staticmethod
    def _create(admin: AdminClient, name: str) -> KafkaError | None:
        made = admin.create_topics([NewTopic(name, num_partitions=1)], request_timeout=CALL_TIMEOUT_S)
        try:
            made[name].result()
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            return error
        return None

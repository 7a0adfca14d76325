"""Clients of a cluster while something is done to its pods, and the verdict on what they saw.

Law: every acknowledged record is found again at its offset, an idempotent producer's once and in order, and the group
has read each. How long a producer had no acknowledgement on a partition, how long the group read nothing, and how many
errors the clients were given, are each within the bound that the caller names.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.checkers.history import History
from e2e.harness.law import goes_on, keep
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until

PARTITIONS: Final = 6
RECORDS_PER_S: Final = 100
"""Of each of the two producers."""
POLL_S: Final = 0.2
SESSION_TIMEOUT_MS: Final = 15_000
CREATED_WITHIN_S: Final = 60.0
READ_WITHIN_S: Final = 90.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What clients may see. `errors`: of connections, which the library makes again. No record may have an error."""

    silence_s: float
    group_silence_s: float
    errors: int


@dataclass(slots=True)
class Follower:
    """A group of one member, which reads a topic from its start."""

    bootstrap: str
    topic: str
    settings: Mapping[str, Any]
    seen: set[bytes] = field(default_factory=set)
    heard: list[str] = field(default_factory=list)
    silence_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.topic}-followers",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "error_cb": self._hear,
                "log_level": 0,
                **self.settings,
            }
        )
        consumer.subscribe([self.topic])
        last_s: float | None = None
        while not self._stop.is_set():
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._hear(error)
                continue
            now = time.monotonic()
            self.silence_s = max(self.silence_s, now - (last_s or now))
            last_s = now
            self.seen.add(message.value() or b"")
        consumer.close()

    def _hear(self, error: KafkaError) -> None:
        self.heard.append(error.str())


@contextmanager
def traffic(
    bootstrap: str, topic: str, bounds: Bounds, settings: Mapping[str, Any] | None = None
) -> Iterator[Load]:
    """Two producers and a group in the block, and the verdict after it."""
    login = settings or {}
    create(bootstrap, topic, login)
    load = Load(bootstrap, topic, PARTITIONS, History(), per_s=RECORDS_PER_S, settings=login)
    follower = Follower(bootstrap, topic, login)
    follower.start()
    load.start("idempotent0", idempotent=True)
    load.start("plain0", idempotent=False)
    try:
        goes_on(load)
        until("the group reads", lambda: len(follower.seen) > 0, READ_WITHIN_S)
        yield load
        goes_on(load)
        silence_s = load.silence_s()
    finally:
        load.stop()
    acknowledged = {sent.value for sent in load.history.acknowledged}
    try:
        until("the group has read everything", lambda: acknowledged <= follower.seen, READ_WITHIN_S)
    finally:
        follower.stop()
    heard = [*load.heard, *follower.heard]
    log.info(
        "%s: %d acknowledged, %.1f s without an acknowledgement, %.1f s without a record in the group, %d errors %s",
        *(topic, len(acknowledged), silence_s, follower.silence_s, len(heard), sorted(set(heard))[:5]),
    )
    assert load.errors == []
    assert len(load.history.acknowledged) == len(load.history.sent)
    keep(load.history.violations(read_everything(bootstrap, topic, PARTITIONS, login)))
    assert silence_s <= bounds.silence_s
    assert follower.silence_s <= bounds.group_silence_s
    assert len(heard) <= bounds.errors, heard


def create(bootstrap: str, topic: str, settings: Mapping[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    [made] = admin.create_topics([NewTopic(topic, PARTITIONS)], request_timeout=CREATED_WITHIN_S).values()
    made.result(CREATED_WITHIN_S)

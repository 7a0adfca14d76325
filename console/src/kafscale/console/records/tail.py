"""Records as they come.

Law R6: shown + counted = written. A tail shows RECORDS_PER_S and BYTES_PER_S at most, and counts what it does not
show. It ends after AGE_S, with the login, and when its reader leaves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafscale.client.admin_client import Client, trouble_of
from kafscale.client.topics import of_topic
from kafscale.console.answers import Problem
from kafscale.console.records.merge import Cut
from kafscale.console.records.reading import Record, consumer_of, record_of

TAILS_MAX: Final = 16
RECORDS_PER_S: Final = 200
BYTES_PER_S: Final = 1 << 20
AGE_S: Final = 1_800.0
TURN_S: Final = 1.0
_POLL_S: Final = 0.1


@dataclass(slots=True)
class Turn:
    """What came within TURN_S. `at`: where the tail is after it."""

    at: Cut
    records: list[Record] = field(default_factory=list)
    bytes: int = 0
    not_shown: int = 0

    def add(self, record: Record) -> None:
        self.at[record.partition] = record.offset + 1
        if len(self.records) == RECORDS_PER_S or (self.records and self.bytes + record.size > BYTES_PER_S):
            self.not_shown += 1
            return
        self.records.append(record)
        self.bytes += record.size


class Tails:
    """How many there are, of all persons. `threads`: one for each, so that tails take none of those of requests."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(TAILS_MAX, "tail")
        self.count = 0
        """Of those that are open."""

    @contextmanager
    def room(self) -> Iterator[None]:
        """Raises Problem."""
        if self.count == TAILS_MAX:
            sentence = f"{TAILS_MAX} tails are open in this console; end one, or look at the newest records"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "busy", sentence)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


def follow(
    client: Client, topic: str, at: Mapping[int, int], *, committed: bool, stop: threading.Event
) -> Iterator[Turn]:
    """A turn each TURN_S, until `stop` is set or AGE_S is over. Raises KafkaTrouble."""
    until_s = time.monotonic() + AGE_S
    with consumer_of(client, committed=committed, wait_ms=int(TURN_S * 1_000)) as consumer:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in at.items()])
        found = Turn(dict(at))
        while not stop.is_set() and time.monotonic() < until_s:
            found = _turn(consumer, topic, found.at)
            yield found


def _turn(consumer: Consumer, topic: str, at: Mapping[int, int]) -> Turn:
    """What comes within TURN_S. Raises KafkaTrouble."""
    found = Turn(dict(at))
    until_s = time.monotonic() + TURN_S
    while (now := time.monotonic()) < until_s:
        message = consumer.poll(min(_POLL_S, until_s - now))
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.add(record_of(message))
        elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
            raise trouble_of(of_topic(topic), error)
    return found

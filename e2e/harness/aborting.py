"""Transactional producers that write to many partitions, abort some transactions, and go on after every error.

Law (T1): all records of a committed transaction are there once, and none of an aborted one; of one whose commit got no
answer all or none.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from confluent_kafka import KafkaException, Producer

CALL_S = 60.0


class Outcome(Enum):
    UNKNOWN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Writer:
    """One transactional id. After an error that ends a producer it makes a new one, as an application would."""

    bootstrap: str
    topic: str
    partitions: int
    number: int
    until: threading.Event
    outcomes: dict[str, tuple[Outcome, int]] = field(default_factory=dict)  # → records
    errors: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        chance, producer = random.Random(self.number), None
        while not self.until.is_set():
            try:
                producer = producer or self._producer()
                self._transaction(producer, chance)
            except KafkaException as error:
                self.errors[error.args[0].name()] += 1
                producer = self._given_up(producer) if error.args[0].txn_requires_abort() else None

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"writer-{self.number}",
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(CALL_S)
        return producer

    def _given_up(self, producer: Producer | None) -> Producer | None:
        """Aborts. None: it cannot go on."""
        assert producer is not None
        try:
            producer.abort_transaction(CALL_S)
        except KafkaException:
            return None
        self._decided(Outcome.ABORTED)
        return producer

    def _transaction(self, producer: Producer, chance: random.Random) -> None:
        producer.begin_transaction()
        name, records = f"{self.number}-{len(self.outcomes)}", chance.randint(1, 20)
        self.outcomes[name] = Outcome.UNKNOWN, records
        for record in range(records):
            producer.produce(
                self.topic, f"{name}-{record}".encode(), partition=chance.randrange(self.partitions)
            )
        if chance.random() < 0.3:
            if chance.random() < 0.5:
                producer.flush(CALL_S)
            producer.abort_transaction(CALL_S)
            self._decided(Outcome.ABORTED)
        else:
            self._commit(producer)
            self._decided(Outcome.COMMITTED)

    @staticmethod
    def _commit(producer: Producer) -> None:
        """The library says of an error whether the same call may be repeated."""
        while True:
            try:
                producer.commit_transaction(CALL_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                raise
            return

    def _decided(self, outcome: Outcome) -> None:
        name = next(reversed(self.outcomes))
        self.outcomes[name] = outcome, self.outcomes[name][1]


def broken(writers: Sequence[Writer], seen: Counter[str]) -> list[str]:
    found = []
    for writer in writers:
        for name, (outcome, records) in writer.outcomes.items():
            counts = [seen[f"{name}-{record}"] for record in range(records)]
            whole, none = set(counts) == {1}, not any(counts)
            right = {Outcome.COMMITTED: whole, Outcome.ABORTED: none, Outcome.UNKNOWN: whole or none}
            if not right[outcome]:
                found.append(f"{name} is {outcome.name.lower()}, and its records are there {counts} times")
    return found

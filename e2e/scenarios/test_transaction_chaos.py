"""Owners and coordinators die and pause under transactional producers that write to many partitions.

Laws: all records of a committed transaction are there once, and none of an aborted one; of one whose commit got no
answer all or none (T1). Half a minute after the last fault nothing is open: the last stable offset is the end of each
log. In the end fsck finds each entry as a walk of the log says.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.harness.cluster import Cluster
from e2e.harness.law import nap
from e2e.harness.services import until
from e2e.harness.transactional import COMMITTED, UNCOMMITTED, read, stable_end

PARTITIONS = 4
PRODUCERS = 3
TOPIC = "chaos"
CALL_S = 60.0
STUCK_S = 60.0
FAULT_EVERY_S = 5.0
PAUSES_S = (4.0, 12.0)
"""Within the lease of 8 s, and longer: then another instance has the partitions or slots, and has written to them."""
CHAOS_S = float(os.environ.get("CHAOS_S", "60"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 2 * CHAOS_S)]


class Outcome(Enum):
    UNKNOWN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Writer:
    """One transactional id. After an error that ends a producer it makes a new one, as an application would."""

    bootstrap: str
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
                "transactional.id": f"chaos-{self.number}",
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
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
            producer.produce(TOPIC, f"{name}-{record}".encode(), partition=chance.randrange(PARTITIONS))
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path / "data",
        scale={"produce": 2, "coordinator": 2},
    )
    cluster.start()
    yield cluster
    cluster.kill()


def faults(cluster: Cluster, chance: random.Random) -> None:
    """One at a time, of an owner or a coordinator."""
    for _ in range(int(CHAOS_S / FAULT_EVERY_S)):
        nap(FAULT_EVERY_S)
        role, index = chance.choice(("produce", "coordinator")), chance.randrange(2)
        if chance.random() < 0.5:
            cluster.kill_one(role, index)
            continue
        paused = cluster.signal(role, signal.SIGSTOP, index)
        nap(chance.choice(PAUSES_S))
        os.kill(paused, signal.SIGCONT)


def broken(writers: list[Writer], seen: Counter[str]) -> list[str]:
    found = []
    for writer in writers:
        for name, (outcome, records) in writer.outcomes.items():
            counts = [seen[f"{name}-{record}"] for record in range(records)]
            whole, none = set(counts) == {1}, not any(counts)
            right = {Outcome.COMMITTED: whole, Outcome.ABORTED: none, Outcome.UNKNOWN: whole or none}
            if not right[outcome]:
                found.append(f"{name} is {outcome.name.lower()}, and its records are there {counts} times")
    return found


def test_transactions_are_whole_whichever_owners_and_coordinators_die_or_pause(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(CALL_S)
    over, seed = threading.Event(), random.randrange(1 << 16)
    writers = [Writer(cluster.bootstrap, number, over) for number in range(PRODUCERS)]
    with ThreadPoolExecutor(PRODUCERS) as threads:
        running = [threads.submit(writer.run) for writer in writers]
        try:
            faults(cluster, random.Random(seed))
        finally:
            over.set()
    for each in running:
        each.result()
    committed = sum(
        outcome is Outcome.COMMITTED for writer in writers for outcome, _ in writer.outcomes.values()
    )
    assert committed > PRODUCERS, f"seed {seed}: nobody got through: {[writer.errors for writer in writers]}"

    def nothing_is_open() -> bool:
        ends = {part: head.next for part, head in cluster.inside().heads(TOPIC).items()}
        return all(stable_end(cluster.bootstrap, TOPIC, part) == end for part, end in ends.items())

    until(f"every transaction is ended (seed {seed})", nothing_is_open, STUCK_S)
    seen = Counter(
        value for part in range(PARTITIONS) for _, value in read(cluster.bootstrap, TOPIC, COMMITTED, part)
    )
    assert broken(writers, seen) == [], f"seed {seed}"
    every = sum(len(read(cluster.bootstrap, TOPIC, UNCOMMITTED, part)) for part in range(PARTITIONS))
    assert every > seen.total(), "some were aborted"
    done = cluster.fsck()
    assert done.returncode == 0, done.stdout

"""A compacted topic under a producer and consumers, while compaction runs and is killed.

Law: every reader sees rising offsets, and never an older value of a key after a newer one, whether it starts before
the first round, during one or after the last. In the end each reader has the last value of each key. The next round
and a collection of orphans remove what a killed round left. SQL counts the records that a consumer reads, and etcd
and the store agree. The owners settle slices of bundles all the while, and in the end no bundle is left.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.bundles import BUNDLES, settle
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.inside import bundles_in
from e2e.harness.services import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    import kafka

TOPIC = "state"
PARTITIONS = 2
KEYS = 60
TOMBSTONE_EVERY = 9
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "internal.segment.bytes": "8192",
}
"""Slices become segments within two seconds, and these leave the tail one second later: rounds race with both."""
ANSWER_S = 30.0
CAUGHT_UP_S = 90.0
COMMAND_S = 120.0
SWEEP_S = 60.0
IO_BYTES_PER_S = 200_000

pytestmark = pytest.mark.timeout(1_200)

State = dict[bytes, bytes]
"""Key to its last value, without deleted keys."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data_dir: Path = tmp_path_factory.mktemp("compacted")
    cluster = Cluster(data_dir=data_dir, scale={"produce": 2, "fetch": 2}, env=BUNDLES)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=CONFIG)])[TOPIC].result(ANSWER_S)
    yield cluster
    cluster.kill()


@dataclass(slots=True)
class Writer:
    """Writes the same keys with numbered values until stopped; it changes the codec five times."""

    bootstrap: str
    state: State = field(default_factory=dict)
    sent: int = 0
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when all sent records are acknowledged."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(ANSWER_S * 2)
        assert not self._thread.is_alive()
        assert self.errors == []
        assert self.acknowledged == self.sent

    def _write(self) -> None:
        producers = [
            Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "enable.idempotence": True,
                    "compression.type": codec,
                    "linger.ms": 5,
                    "log_level": 0,
                }
            )
            for codec in CODECS
        ]
        while not self._stop.is_set():
            producer = producers[self.sent // 200 % len(CODECS)]
            self._send(producer)
            if self.sent % 20 == 0:
                # One producer at a time: their order is the order of the keys' values.
                producer.flush(ANSWER_S)
                self._stop.wait(0.1)
        for producer in producers:
            producer.flush(ANSWER_S)

    def _send(self, producer: Producer) -> None:
        number = self.sent
        key, value = b"key-%d" % (number % KEYS), b"%d " % number + b"." * 100
        if number % TOMBSTONE_EVERY == 0:
            self.state.pop(key, None)
            producer.produce(TOPIC, None, key, headers={"n": b"%d" % number}, on_delivery=self._told)
        else:
            self.state[key] = value
            producer.produce(TOPIC, value, key, headers={"n": b"%d" % number}, on_delivery=self._told)
        self.sent += 1
        producer.poll(0)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.acknowledged += error is None


@dataclass(slots=True)
class Follower:
    """Reads from the beginning and continues; the values of a key must only become newer."""

    bootstrap: str
    name: str
    state: State = field(default_factory=dict)
    read: int = 0
    newest: int = -1
    errors: list[str] = field(default_factory=list)
    _offsets: dict[int, int] = field(default_factory=dict)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._follow, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "max.partition.fetch.bytes": 20_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, part, OFFSET_BEGINNING) for part in range(PARTITIONS)])
        while not self._stop.is_set():
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                    continue
                headers = dict(message.headers() or ())
                self.take(
                    message.partition() or 0,
                    message.offset() or 0,
                    bytes(message.key() or b""),
                    message.value(),
                    int(headers["n"] or b""),
                )
        consumer.close()

    def take(self, partition: int, offset: int, key: bytes, value: bytes | None, number: int) -> None:
        self.read += 1
        self.newest = max(self.newest, number)
        if offset <= self._offsets.get(partition, -1):
            self.errors.append(f"{partition}/{offset} came after {self._offsets[partition]}")
        if number <= self._numbers.get(key, -1):
            self.errors.append(f"{key!r}: {number} came after {self._numbers[key]}")
        self._offsets[partition] = offset
        self._numbers[key] = number
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value


class Compactions:
    """Rounds of `kafscale compact`, each a process that may be killed in its work."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._tree = cluster.data_dir / "objects" / "default" / "@kafscale" / "compacted"
        self.killed = 0

    def _command(self, *words: str) -> list[str]:
        folder = str(self._cluster.data_dir)
        return [*KAFSCALE, *words, "--data-dir", folder, "--output", "json"]

    def written(self) -> set[Path]:
        return set(self._tree.rglob("*.kfs")) if self._tree.is_dir() else set()

    def kill_one(self) -> None:
        """Begins a round and kills it once it has written some more objects; one that ends before is let be."""
        known = self.written()
        more = self._chance.randint(1, 4)
        words = ("compact", "--yes", "--grace", "0s", "--io-bytes-per-s", str(IO_BYTES_PER_S))
        process = subprocess.Popen(
            self._command(*words), env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(
            "a round of compaction wrote some objects, or ended",
            lambda: len(self.written() - known) >= more or process.poll() is not None,
        )
        self.killed += process.poll() is None
        process.kill()
        process.wait()

    def run(self, *words: str) -> list[dict[str, Any]]:
        """Runs a command to its end. Returns the rows that it shows."""
        done = subprocess.run(
            self._command(*words),
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def finish(self) -> int:
        """Runs rounds until nothing is due, including tombstones. Returns the number of removed records."""
        gone = 0
        while rows := self.run("compact", "--yes", "--grace", "0s"):
            assert [row["trouble"] for row in rows] == [None] * len(rows)
            gone += sum(row["records"] - row["records_after"] for row in rows)
        return gone


def has_read(follower: Follower, number: int) -> bool:
    return follower.newest == number


def read_again(bootstrap: str) -> Follower:
    """The whole topic, from the beginning to its end, read by another client."""
    found = Follower(bootstrap, "after")
    places = [kafka.TopicPartition(TOPIC, part) for part in range(PARTITIONS)]
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    while any(consumer.position(place) < ends[place] for place in places):
        for batch in consumer.poll(timeout_ms=1_000).values():
            for record in batch:
                number = int(dict(record.headers)["n"])
                found.take(record.partition, record.offset, record.key, record.value, number)
    consumer.close()
    return found


def story(cluster: Cluster, kills: int, seed: int) -> None:
    compactions = Compactions(cluster, seed)
    writer = Writer(cluster.bootstrap)
    before, during = (Follower(cluster.bootstrap, name) for name in ("before", "during"))
    writer.start()
    before.start()
    until("enough was written and left the tails", lambda: writer.acknowledged > 2_000, CAUGHT_UP_S)
    for number in range(kills):
        if number == kills // 2:
            during.start()
        compactions.kill_one()
    assert compactions.killed > kills // 2, "rounds end before they are killed"
    writer.stop()
    for follower in (before, during):
        until(f"{follower.name} has read all", partial(has_read, follower, writer.sent - 1), CAUGHT_UP_S)
        follower.stop()
        assert follower.errors == []
        assert follower.state == writer.state
    assert before.read <= writer.sent
    assert compactions.finish() > 0
    compactions.run("orphans", "--yes", "--grace", "0s")
    settle(cluster, TOPIC)
    until("no bundle is left", lambda: bundles_in(cluster.open_store) == set(), SWEEP_S)
    after = read_again(cluster.bootstrap)
    assert after.errors == []
    assert after.state == writer.state
    assert after.read < writer.sent // 2, "most of it went"
    in_sql = compactions.run("sql", "select count(*) as found from records")
    assert in_sql == [{"found": after.read}]
    checked = cluster.fsck()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert cluster.logged_errors() == []


def test_readers_of_a_compacted_topic_meet_nothing_older(cluster: Cluster) -> None:
    story(cluster, kills=4, seed=1)


@pytest.mark.chaos
def test_readers_of_a_compacted_topic_meet_nothing_older_at_length(cluster: Cluster) -> None:
    story(cluster, kills=int(os.environ.get("CYCLES", "50")), seed=2)

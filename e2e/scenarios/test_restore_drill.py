"""The restore drill of docs/backup.md: etcd is lost under load, and comes back from a snapshot or from nothing.

Laws: after `kafscale fsck --roll-forward` every acknowledged record is there once, and fsck is clean. Idempotent
producers continue. A topic that was deleted after the snapshot does not come back, and configs are the snapshot's.
Transactions with their markers in the bucket are as they ended. All others are aborted, also one whose commit was
answered; nothing stays open, and their ids begin anew.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException, Producer

from e2e.checkers.history import History
from e2e.harness.bundles import SEGMENTS_OF_TOPIC
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.etcd_tools import restore_etcd
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until
from e2e.harness.transactional import COMMITTED, read, stable_end

PARTITIONS: Final = 6
TIMEOUT_S: Final = 120.0
PHASE_RECORDS: Final = 1_500
RETENTION_MS: Final = "3600000"
SETTLED_SOON: Final = {"KAFSCALE_SETTLE_MS": "2000"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {"orders": {}, "payments": SEGMENTS_OF_TOPIC}
"""Name -> configs. So the bucket has slices, settled segments, segments of their own, and manifests."""
PAID: Final = "paid"
BILLS: Final = 2
"""Partitions of the topic of transactions."""
OWNERS: Final = 2
CALL_S: Final = 60.0
TIMEOUT_MS: Final = 600_000
"""Of transactions: longer than the test."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", scale={"produce": OWNERS}, env=SETTLED_SOON)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def kafscale(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    line = [*KAFSCALE, *words, "--data-dir", str(cluster.data_dir)]
    env = {**os.environ, **cluster.env}
    return subprocess.run(
        line,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def done(cluster: Cluster, *words: str) -> str:
    ended = kafscale(cluster, *words)
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout + ended.stderr


def begun(cluster: Cluster) -> list[Load]:
    loads: list[Load] = []
    for topic, configs in TOPICS.items():
        words = ["topics", "create", topic, "--partitions", str(PARTITIONS)]
        for key, value in {"retention.ms": RETENTION_MS, **configs}.items():
            words += ["--config", f"{key}={value}"]
        done(cluster, *words)
        load = Load(cluster.bootstrap, topic, PARTITIONS, History())
        load.start("idempotent", idempotent=True)
        load.start("plain", idempotent=False)
        loads.append(load)
    return loads


def write_on(loads: list[Load]) -> None:
    for load in loads:
        wanted = load.acknowledged() + PHASE_RECORDS
        until(f"{wanted} records are acknowledged", partial(has_acknowledged, load, wanted))


def has_acknowledged(load: Load, wanted: int) -> bool:
    return load.acknowledged() >= wanted


def end_complete(cluster: Cluster, loads: list[Load]) -> None:
    for load in loads:
        load.stop()
        problems = load.history.violations(read_everything(cluster.bootstrap, load.topic, PARTITIONS))
        assert problems == [], problems
        assert load.errors == []


@dataclass(slots=True)
class Bills:
    """Transactions in every state. Each has a record in each partition, which is acknowledged."""

    cluster: Cluster
    committed: list[str] = field(default_factory=list)
    """Values of those whose markers are in the bucket."""
    left: list[Producer] = field(default_factory=list)
    """Producers of those that are open."""
    closing: int = 0
    """How many are decided, and have no marker."""

    @classmethod
    def begun(cls, cluster: Cluster) -> Bills:
        done(cluster, "topics", "create", PAID, "--partitions", str(BILLS))
        return cls(cluster)

    def begin(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "log_level": 0,
            }
        )
        producer.init_transactions(CALL_S)
        producer.begin_transaction()
        for partition in range(BILLS):
            producer.produce(PAID, name.encode(), partition=partition)
        assert producer.flush(CALL_S) == 0
        return producer

    def end(self, name: str) -> None:
        """One is committed, one is aborted. Returns when their markers are committed, and so are in the bucket."""
        self.begin(name).commit_transaction(CALL_S)
        self.begin(f"{name}-aborted").abort_transaction(CALL_S)

        def have_markers() -> bool:
            heads = self.cluster.inside().heads(PAID).values()
            return [len(head.open) for head in heads] == [len(self.left)] * BILLS

        until("the markers are committed", have_markers)
        self.committed.append(name)

    def leave_open(self, name: str) -> None:
        self.left.append(self.begin(name))

    def leave_closing(self, name: str) -> None:
        """Decides a commit while no owner can write a marker. The owners stand still from now on."""
        producer = self.begin(name)
        for index in range(OWNERS):
            self.cluster.signal("produce", signal.SIGSTOP, index)
        producer.commit_transaction(CALL_S)
        self.closing += 1

    def aborted_by(self, shown: str) -> None:
        count = len(self.left) + self.closing
        assert f"ABORTED: what {count} producers had open in {BILLS} partitions" in shown, shown

    def end_complete(self) -> None:
        """Nothing is open, and ids begin anew. Their earlier producers cannot go on."""
        for producer in self.left:
            with pytest.raises(KafkaException, match="INVALID_PRODUCER_ID_MAPPING"):
                producer.commit_transaction(CALL_S)
        self.left.clear()
        self.end("open")
        heads = self.cluster.inside().heads(PAID)
        until("all is read", lambda: all(self._is_read(part, head.next) for part, head in heads.items()))

    def _is_read(self, partition: int, end: int) -> bool:
        """As it was committed, and to the end of the log."""
        bootstrap = self.cluster.bootstrap
        values = [value for _, value in read(bootstrap, PAID, COMMITTED, partition)]
        return (values, stable_end(bootstrap, PAID, partition)) == (self.committed, end)


def has_retention(cluster: Cluster, value: str) -> None:
    shown = done(cluster, "configs", "describe", "orders")
    assert re.search(rf"retention\.ms\s+{value}\b", shown), shown


def say(cluster: Cluster, topic: str, words: str) -> None:
    line = [*KAFSCALE, "produce", topic, "-b", cluster.bootstrap]
    subprocess.run(line, input=f"{words}\n", text=True, timeout=TIMEOUT_S, check=True)


def test_a_lost_etcd_comes_back_from_a_snapshot_and_the_bucket(cluster: Cluster, tmp_path: Path) -> None:
    loads, bills = begun(cluster), Bills.begun(cluster)
    done(cluster, "topics", "create", "doomed", "--partitions", "2")
    say(cluster, "doomed", "one")
    bills.end("early")
    bills.leave_open("open")
    write_on(loads)
    done(cluster, "backup", "create")
    bills.end("late")
    bills.leave_open("young")
    write_on(loads)
    done(cluster, "topics", "delete", "doomed", "--yes")
    done(cluster, "topics", "create", "younger", "--partitions", "1")
    say(cluster, "younger", "two")
    younger = cluster.inside().topic_id("younger").hex()
    objects = cluster.data_dir / "objects" / "default"
    until("the deletion has begun", lambda: bool(list(objects.glob("@kafscale/deleted/*/*"))))
    bills.leave_closing("closing")
    cluster.kill()

    shutil.rmtree(cluster.data_dir / "etcd")
    snapshot = tmp_path / "snapshot.db"
    done(cluster, "backup", "get", str(snapshot))
    restore_etcd(snapshot, cluster.data_dir / "etcd")
    shown = done(cluster, "fsck", "--roll-forward", "--yes", "--topic-name", f"{younger}=younger")
    assert "TOPIC doomed" in shown, shown
    assert "GAP" not in shown, shown
    assert "clean: etcd and the object store agree" in shown, shown
    bills.aborted_by(shown)

    cluster.start()
    write_on(loads)
    end_complete(cluster, loads)
    bills.end_complete()
    topics = done(cluster, "topics", "list").split()
    assert ("doomed" in topics, "younger" in topics) == (False, True), topics
    assert "two" in done(cluster, "consume", "younger", "--exit")
    has_retention(cluster, RETENTION_MS)
    cluster.stop()
    assert cluster.fsck().returncode == 0


def test_without_a_snapshot_the_bucket_is_enough_for_the_records(cluster: Cluster) -> None:
    loads, bills = begun(cluster), Bills.begun(cluster)
    bills.end("early")
    bills.leave_open("open")
    write_on(loads)
    objects = cluster.data_dir / "objects" / "default"
    settled = [objects / topic for topic in ("orders", PAID)]
    # From then on the names of the topics are in the bucket.
    until("slices are settled", lambda: all(any(topic.glob("*/*.kfs")) for topic in settled))
    write_on(loads)
    bills.leave_closing("closing")
    cluster.kill()

    shutil.rmtree(cluster.data_dir / "etcd")
    (cluster.data_dir / "etcd").mkdir(mode=0o700)
    asked = kafscale(cluster, "fsck", "--roll-forward")
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True), asked.stderr
    shown = done(cluster, "fsck", "--roll-forward", "--yes")
    assert "GAP" not in shown, shown
    assert "TOPIC orders is created with 6 partitions" in shown
    bills.aborted_by(shown)
    assert "nothing to change" in done(cluster, "fsck", "--roll-forward", "--yes")
    cluster.start()
    write_on(loads)
    end_complete(cluster, loads)
    bills.end_complete()
    has_retention(cluster, "-1")
    cluster.stop()
    assert cluster.fsck().returncode == 0

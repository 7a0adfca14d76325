"""Consumer lag of a real group: what upkeep shows and what `kafscale lag` says, while the cluster runs and after.

Law: the lag in records counts the unread records. The time lag is the age of the first of them, in milliseconds. The
report names the member of each partition. A group without commits is STOP once the window has passed, and not before. A
partition without a committed offset is in the report, and in no metric of lag. A group that lost records is LOST at
once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.inside import get
from e2e.harness.services import until

TOPIC, GROUP, CLIENT = "orders", "billing </script>", "billing-1"
PARTITIONS, EACH, READ = 2, 100, 60
NEW, NEW_RECORDS = PARTITIONS, 7
"""A partition in which the group commits nothing."""
LOST = 10
AHEAD = 490
CONSUMER: Any = {
    "group.id": GROUP,
    "client.id": CLIENT,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
AGE_MS = 3 * 3_600_000
STEP_MS = 10_000
COMMAND_TIMEOUT_S = 240
WAIT_S = 120.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", env={"KAFSCALE_LAG_EVERY_MS": "1000"})
    cluster.start()
    yield cluster
    cluster.kill()


def fill(bootstrap: str) -> int:
    """Record n of each partition was written n steps after the first. Returns the time of the first."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS + 1)]).values():
        future.result(WAIT_S)
    first_ms = int(time.time() * 1000) - AGE_MS
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(EACH):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"x" * 50, partition=partition, timestamp=first_ms + number * STEP_MS)
    for _ in range(NEW_RECORDS):
        producer.produce(TOPIC, b"x", partition=NEW)
    assert producer.flush(WAIT_S) == 0
    return first_ms


def read(consumer: Consumer) -> None:
    """The first READ of each partition, committed."""
    consumer.subscribe([TOPIC])
    left = {(partition, offset) for partition in range(PARTITIONS) for offset in range(READ)}

    def polled() -> bool:
        for message in consumer.consume(50, timeout=0.5):
            assert isinstance(message, Message)
            assert message.error() is None, message.error()
            left.discard((message.partition() or 0, message.offset() or 0))
        return not left

    until("the group has read its share", polled, WAIT_S)
    offsets = [TopicPartition(TOPIC, partition, READ) for partition in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)


def metrics(cluster: Cluster, name: str) -> list[tuple[str, float]]:
    """The samples of a gauge of upkeep: labels as they stand there, and the value."""
    (upkeep,) = cluster.inside().instances("upkeep")
    _, text = get(upkeep.http_address, "/metrics")
    prefix = f"kafka_consumergroup_group_{name}{{"
    lines = [line for line in text.splitlines() if line.startswith(prefix)]
    return [(labels, float(value)) for labels, _, value in (line.rpartition(" ") for line in lines)]


def lag(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [
            *KAFSCALE,
            "lag",
            "--data-dir",
            str(cluster.data_dir),
            "-o",
            "json",
            "--group",
            GROUP,
            *words,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def lose(bootstrap: str) -> None:
    """Deletes the records of partition 0 up to LOST behind the group's committed offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, READ + LOST)]).values():
        future.result(WAIT_S)


def go_ahead(cluster: Cluster) -> None:
    """Commits an offset that the new partition does not have, as a restore of offsets without their records does."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        beyond = TopicPartition(TOPIC, NEW, NEW_RECORDS + AHEAD)
        consumer.commit(offsets=[beyond], asynchronous=False)
    finally:
        consumer.close()
    until("upkeep shows it", lambda: {v for _, v in metrics(cluster, "ahead")} == {0.0, AHEAD}, WAIT_S)
    assert 8.0 in {value for _, value in metrics(cluster, "status")}


def check(rows: list[dict[str, Any]], first_ms: int, began_ms: int, lost: int = 0, ahead: int = 0) -> None:
    """`lost`: of partition 0. `ahead`: of the new one."""
    now_ms = int(time.time() * 1000)
    assert [(row["partition"], row["committed"], row["records"], row["lost"]) for row in rows] == [
        (0, READ, EACH - READ - lost, lost),
        (1, READ, EACH - READ, 0),
        (NEW, NEW_RECORDS + ahead, 0, 0) if ahead else (NEW, None, NEW_RECORDS, 0),
    ]
    assert (rows[NEW]["status"], rows[NEW]["ahead"]) == ("AHEAD" if ahead else "UNKNOWN", ahead)
    assert (rows[0]["status"] == "LOST") is bool(lost)
    for row, gone in ((rows[0], lost), (rows[1], 0)):
        unread_ms = first_ms + (READ + gone) * STEP_MS
        assert began_ms - unread_ms <= row["time_ms"] <= now_ms - unread_ms, row


def test_a_group_that_stops_half_way(cluster: Cluster, tmp_path: Path) -> None:
    first_ms = fill(cluster.bootstrap)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **CONSUMER})
    try:
        read(consumer)
        behind = float(PARTITIONS * (EACH - READ))
        until("upkeep shows the lag", lambda: [v for _, v in metrics(cluster, "sum_lag")] == [behind], WAIT_S)
        assert all(f'client_id="{CLIENT}"' in labels for labels, _ in metrics(cluster, "lag"))
        began_ms, page = int(time.time() * 1000), tmp_path / "lag.html"
        rows = lag(cluster, "--html", str(page))
        check(rows, first_ms, began_ms)
        assert {row["client"] for row in rows} == {CLIENT}
        assert GROUP not in page.read_text(), "the page has no plain name"
        told: list[float] = []

        def stopped() -> bool:
            told.extend(value for _, value in metrics(cluster, "status"))
            return told[-PARTITIONS:] == [4.0] * PARTITIONS

        until("the group is seen to have stopped", stopped, WAIT_S)
        assert set(told) <= {0.0, 4.0}, "unknown until the window has passed"
        uncommitted = [value for _, value in metrics(cluster, "uncommitted_lag")]
        assert (len(metrics(cluster, "lag")), uncommitted) == (PARTITIONS, [float(NEW_RECORDS)])
        lose(cluster.bootstrap)
        until("the loss is shown", lambda: {v for _, v in metrics(cluster, "lost")} == {0.0, LOST}, WAIT_S)
        assert {value for _, value in metrics(cluster, "status")} == {4.0, 7.0}
    finally:
        consumer.close()
    go_ahead(cluster)
    assert cluster.logged_errors() == []
    cluster.stop()
    began_ms = int(time.time() * 1000)
    check(lag(cluster), first_ms, began_ms, LOST, AHEAD)

"""Jobs of Spark on a cluster of real processes: the rows of a consumer, and compaction beside another round of it.

Law: SQL by Spark counts what was produced; while a submitted job compacts, a command compacts the same logs and a
producer goes on, and what a job left that was killed at its work the next round ends. A consumer meets the last value
of each key then, offsets that rise, and no key that was never written; etcd and the store agree. What is exported from
the stopped cluster is what the consumer read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.services import dying_with_parent, until
from e2e.harness.spark import ROOT, spark_python

TOPIC = "state"
PARTITIONS = 3
KEYS = 50
PER_FLUSH = 20
FLUSHES = 120
"""Each a segment in every partition: more than heads keep."""
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SLOW_BYTES_PER_S = 20_000
"""Several seconds for each log."""
ANSWER_S = 30.0
SLICE_S = 0.5
ROUNDS_MAX = 8
"""Of the command while the job runs. Each round takes CPU from the job, which would run longer for it."""
JOB_S = 400.0
JOBS = ROOT / "spark" / "engine" / "src" / "kafscale_spark" / "jobs"
LOOPBACK = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false")

pytestmark = pytest.mark.timeout(1_800)

Row = tuple[int, int, bytes, bytes]
"""Partition, offset, key and value."""


class Writer:
    """Writes keys over and over, numbered."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
        self.sent = 0
        self.state: dict[bytes, bytes] = {}

    def write(self, flushes: int) -> None:
        for _ in range(flushes):
            for number in range(self.sent, self.sent + PER_FLUSH):
                key, value = b"key-%d" % (number % KEYS), b"%d" % number
                self._producer.produce(TOPIC, value, key)
                self.state[key] = value
            self.sent += PER_FLUSH
            assert self._producer.flush(ANSWER_S) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    spark_python()
    cluster = Cluster(data_dir=tmp_path / "data", env=SEGMENTS)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=CONFIG)])[TOPIC].result(ANSWER_S)
    yield cluster
    cluster.kill()


def kafscale(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """A command to its end; the rows that it shows."""
    done = subprocess.run(
        [*KAFSCALE, *words, "--data-dir", str(cluster.data_dir), "--output", "json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def submitted(cluster: Cluster, job: str, *words: str) -> subprocess.Popen[str]:
    """spark-submit, as a person or a CronJob calls it."""
    python = spark_python()
    told = json.loads((cluster.data_dir / "run" / "endpoints.json").read_text())
    conf = [word for each in LOOPBACK for word in ("--conf", each)]
    return subprocess.Popen(
        [
            *dying_with_parent(),
            *(str(python.parent / "spark-submit"), "--master", "local[2]", *conf),
            *(str(JOBS / f"{job}.py"), *words),
        ],
        env={
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "KAFSCALE_ETCD_ENDPOINTS": told["etcd"],
            "KAFSCALE_NAMESPACE": told["namespace"],
            "KAFSCALE_OBJECT_STORE": "dir",
            "KAFSCALE_OBJECT_DIR": told["object_dir"],
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def consumed(bootstrap: str) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "log_level": 0})
    places = [TopicPartition(TOPIC, part, OFFSET_BEGINNING) for part in range(PARTITIONS)]
    consumer.assign(places)
    left = {place.partition: consumer.get_watermark_offsets(place, ANSWER_S)[1] for place in places}
    found: list[Row] = []
    while any(left.values()):
        messages: list[Message] = []

        def more(messages: list[Message] = messages) -> bool:
            messages += consumer.consume(1_000, timeout=SLICE_S)
            return bool(messages)

        until(f"more of {left}", more, ANSWER_S)
        for message in messages:
            assert message.error() is None
            place, offset = message.partition() or 0, message.offset() or 0
            found.append((place, offset, bytes(message.key() or b""), bytes(message.value() or b"")))
            if offset + 1 >= left[place]:
                left[place] = 0  # the newest record is never compacted away
    consumer.close()
    return found


def published(cluster: Cluster, job: subprocess.Popen[str]) -> None:
    """Returns once compaction has written an object, or the job has ended."""
    tree = cluster.data_dir / "objects" / "default" / "@kafscale" / "compacted"
    until(
        "the job wrote an object, or ended", lambda: any(tree.rglob("*.kfs")) or job.poll() is not None, JOB_S
    )


def in_order(rows: Sequence[Row]) -> None:
    offsets: dict[int, int] = {}
    for place, offset, _, _ in rows:
        assert offset > offsets.get(place, -1)
        offsets[place] = offset


def whole(cluster: Cluster, writer: Writer) -> list[Row]:
    """What a consumer reads, once it has been held against what was written and against the store."""
    rows = consumed(cluster.bootstrap)
    in_order(rows)
    assert {key: value for _, _, key, value in rows} == writer.state
    assert len(rows) < writer.sent * 3 // 4, (
        "much of it went: all but what heads keep, and a record of each key"
    )
    kafscale(cluster, "orphans", "--yes", "--grace", "0s")
    checked = cluster.fsck()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert cluster.logged_errors() == []
    return rows


def test_jobs_of_spark_on_a_cluster_of_real_processes(cluster: Cluster, tmp_path: Path) -> None:
    writer = Writer(cluster.bootstrap)
    writer.write(FLUSHES)
    counted = kafscale(
        cluster, "sql", "--engine", "spark", "select count(*) as n, count(distinct key) as k from records"
    )
    assert counted == [{"n": writer.sent, "k": KEYS}]
    job = submitted(cluster, "compaction", "--grace-s", "0")
    published(cluster, job)
    for _ in range(ROUNDS_MAX):
        if job.poll() is not None:
            break
        writer.write(1)
        kafscale(cluster, "compact", "--yes", "--grace", "0s")
    output, _ = job.communicate(timeout=JOB_S)
    assert job.returncode == 0, output
    assert f"|{TOPIC}|" in output, output
    rows = whole(cluster, writer)
    assert cluster.stop() == 0
    folder = tmp_path / "exported"
    kafscale(cluster, "export", TOPIC, "--to", str(folder), "--engine", "spark")
    found = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
    assert sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in found) == sorted(
        rows
    )


@pytest.mark.chaos
def test_what_a_killed_job_of_compaction_left_the_next_round_ends(cluster: Cluster) -> None:
    """The gate kills a pass at each of its steps without Spark: `spark/lake/tests/test_compaction_starved.py`."""
    writer = Writer(cluster.bootstrap)
    writer.write(FLUSHES)
    job = submitted(cluster, "compaction", "--grace-s", "0", "--io-bytes-per-s", str(SLOW_BYTES_PER_S))
    published(cluster, job)
    assert job.poll() is None, job.communicate()[0]
    job.kill()
    job.communicate(timeout=JOB_S)
    kafscale(cluster, "compact", "--yes", "--grace", "0s")
    whole(cluster, writer)

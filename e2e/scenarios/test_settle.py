"""`kafscale settle` on real processes.

Laws: after exit code 0 no head names a slice, so a program that knows only segments can read the bucket, and every
record is there. With KAFSCALE_BUNDLE_DIRECT_BYTES=1 no slice comes after it. Without owners the command fails at once,
and says why.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import KAFSCALE, Cluster

TIMEOUT_S = 120.0
TOPICS = ("orders", "payments")
PARTITIONS = 6
RECORDS = 300

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", scale={"produce": 2})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def kafscale(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    line = [*KAFSCALE, *words, "--data-dir", str(cluster.data_dir)]
    return subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def done(cluster: Cluster, *words: str) -> str:
    ended = kafscale(cluster, *words)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    return ended.stdout


def write(cluster: Cluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(first, first + RECORDS):
        for topic in TOPICS:
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        if number % 20 == 0:
            producer.flush(TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0


def slices(cluster: Cluster, topic: str) -> int:
    heads = cluster.inside().heads(topic).values()
    return sum(seg.is_slice for head in heads for seg in head.tail)


def test_after_it_the_bucket_has_only_segments(cluster: Cluster) -> None:
    for topic in TOPICS:
        done(cluster, "topics", "create", topic, "--partitions", str(PARTITIONS))
    write(cluster, 0)
    assert all(slices(cluster, topic) for topic in TOPICS)
    done(cluster, "settle", "orders", "--allow-newer")
    assert (slices(cluster, "orders"), slices(cluster, "payments") > 0) == (0, True)
    write(cluster, RECORDS)
    cluster.stop()

    refused = kafscale(cluster, "settle")
    assert (refused.returncode, "no produce instance runs" in refused.stderr) == (1, True), refused.stderr

    cluster.env = dict(SEGMENTS)
    cluster.start()
    assert json.loads(done(cluster, "settle", "--output", "json")) == []
    assert [slices(cluster, topic) for topic in TOPICS] == [0, 0]
    write(cluster, 2 * RECORDS)
    assert [slices(cluster, topic) for topic in TOPICS] == [0, 0]
    for topic in TOPICS:
        read = done(cluster, "consume", topic, "--exit").split()
        assert sorted(map(int, read)) == list(range(3 * RECORDS))
    assert "clean" in done(cluster, "fsck")
    assert cluster.stop() == 0

"""The restore drill of docs/backup.md: etcd is lost under load, and comes back from a snapshot or from nothing.

Laws: after `kafscale fsck --roll-forward` every acknowledged record is there once, and fsck is clean. Idempotent
producers continue. A topic that was deleted after the snapshot does not come back, and configs are the snapshot's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from e2e.checkers.history import History
from e2e.harness.bundles import SEGMENTS_OF_TOPIC
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.etcd_tools import restore_etcd
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until

PARTITIONS: Final = 6
TIMEOUT_S: Final = 120.0
PHASE_RECORDS: Final = 1_500
RETENTION_MS: Final = "3600000"
SETTLED_SOON: Final = {"KAFSCALE_SETTLE_MS": "2000"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {"orders": {}, "payments": SEGMENTS_OF_TOPIC}
"""Name -> configs. So the bucket has slices, settled segments, segments of their own, and manifests."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", scale={"produce": 2}, env=SETTLED_SOON)
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


def has_retention(cluster: Cluster, value: str) -> None:
    shown = done(cluster, "configs", "describe", "orders")
    assert re.search(rf"retention\.ms\s+{value}\b", shown), shown


def say(cluster: Cluster, topic: str, words: str) -> None:
    line = [*KAFSCALE, "produce", topic, "-b", cluster.bootstrap]
    subprocess.run(line, input=f"{words}\n", text=True, timeout=TIMEOUT_S, check=True)


def test_a_lost_etcd_comes_back_from_a_snapshot_and_the_bucket(cluster: Cluster, tmp_path: Path) -> None:
    loads = begun(cluster)
    done(cluster, "topics", "create", "doomed", "--partitions", "2")
    say(cluster, "doomed", "one")
    write_on(loads)
    done(cluster, "backup", "create")
    write_on(loads)
    done(cluster, "topics", "delete", "doomed", "--yes")
    done(cluster, "topics", "create", "younger", "--partitions", "1")
    say(cluster, "younger", "two")
    younger = cluster.inside().topic_id("younger").hex()
    objects = cluster.data_dir / "objects" / "default"
    until("the deletion has begun", lambda: bool(list(objects.glob("@kafscale/deleted/*/*"))))
    cluster.kill()

    shutil.rmtree(cluster.data_dir / "etcd")
    snapshot = tmp_path / "snapshot.db"
    done(cluster, "backup", "get", str(snapshot))
    restore_etcd(snapshot, cluster.data_dir / "etcd")
    shown = done(cluster, "fsck", "--roll-forward", "--yes", "--topic-name", f"{younger}=younger")
    assert "TOPIC doomed" in shown, shown
    assert "GAP" not in shown, shown
    assert "clean: etcd and the object store agree" in shown, shown

    cluster.start()
    write_on(loads)
    end_complete(cluster, loads)
    topics = done(cluster, "topics", "list").split()
    assert ("doomed" in topics, "younger" in topics) == (False, True), topics
    assert "two" in done(cluster, "consume", "younger", "--exit", "-b", cluster.bootstrap)
    has_retention(cluster, RETENTION_MS)
    cluster.stop()
    assert cluster.fsck().returncode == 0


def test_without_a_snapshot_the_bucket_is_enough_for_the_records(cluster: Cluster) -> None:
    loads = begun(cluster)
    write_on(loads)
    until(
        "slices are settled",
        lambda: bool(list((cluster.data_dir / "objects/default/orders").glob("*/*.kfs"))),
    )
    write_on(loads)
    cluster.kill()

    shutil.rmtree(cluster.data_dir / "etcd")
    (cluster.data_dir / "etcd").mkdir(mode=0o700)
    asked = kafscale(cluster, "fsck", "--roll-forward")
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True), asked.stderr
    shown = done(cluster, "fsck", "--roll-forward", "--yes")
    assert "GAP" not in shown, shown
    assert "TOPIC orders is created with 6 partitions" in shown
    assert "nothing to change" in done(cluster, "fsck", "--roll-forward", "--yes")
    cluster.start()
    write_on(loads)
    end_complete(cluster, loads)
    has_retention(cluster, "-1")
    cluster.stop()
    assert cluster.fsck().returncode == 0

"""kill -9 of every process at random moments, again and again, while producers go on.

Law: after each restart every acknowledged record is there, at the offset that was acknowledged, in order, and
none twice for idempotent producers; and `kafscale fsck` finds etcd and the store in agreement.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.checkers.history import History
from e2e.harness.cluster import Cluster
from e2e.harness.load import Load, read_everything

PARTITIONS = 3
CYCLES_QUICK = 3
CYCLES_CHAOS = int(os.environ.get("CYCLES", "50"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path, env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)})
    cluster.start()
    yield cluster
    cluster.kill()


def survive(cluster: Cluster, cycles: int, seed: int) -> None:
    chance = random.Random(seed)
    load = Load(cluster.bootstrap, "survivors", PARTITIONS, History())
    for n in range(2):
        load.start(f"idempotent{n}", idempotent=True)
        load.start(f"plain{n}", idempotent=False)
    for cycle in range(cycles):
        before = load.acknowledged()
        threading.Event().wait(chance.uniform(0.3, 3))  # the moment of death is what is random here
        cluster.kill()
        cluster.start()
        check(
            cluster,
            load.history,
            f"cycle {cycle} (seed {seed}), {load.acknowledged() - before} acknowledged in it",
        )
    load.stop()
    assert load.errors == []
    check(cluster, load.history, "the end", final=True)


def check(cluster: Cluster, history: History, when: str, *, final: bool = False) -> None:
    if final:
        log = read_everything(cluster.bootstrap, "survivors", PARTITIONS)
        assert history.violations(log) == [], when
        assert len(history.acknowledged) == len(history.sent), when
        done = cluster.fsck()
        assert done.returncode == 0, f"{when}:\n{done.stdout}{done.stderr}"
        return
    acknowledged = dict(history.acknowledged)
    log = read_everything(cluster.bootstrap, "survivors", PARTITIONS)
    known = History(idempotent=history.idempotent, sent=list(history.sent), acknowledged=acknowledged)
    assert known.violations(log) == [], when


@pytest.mark.timeout(300)
def test_three_deaths_of_everything_lose_nothing(cluster: Cluster) -> None:
    survive(cluster, CYCLES_QUICK, seed=random.SystemRandom().randrange(2**32))


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_fifty_deaths_of_everything_lose_nothing(cluster: Cluster) -> None:
    survive(cluster, CYCLES_CHAOS, seed=random.SystemRandom().randrange(2**32))

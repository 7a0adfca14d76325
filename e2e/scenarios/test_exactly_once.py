"""Programs that read, process and write, while services die and stand still.

Law: what such a program has written, as a consumer of committed records reads it, is what it was to read: each record
once, in order, nothing lost, nothing of a transaction that was aborted. The programs are real clients of both
protocols of transactions, in groups of both protocols.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES
from e2e.harness.cluster import Cluster
from e2e.harness.exactly_once import ALL, QUICK, Copying, copied, copying
from e2e.harness.law import keep, nap
from e2e.harness.load import Load

log = logging.getLogger(__name__)

TOPIC = "orders"
PARTITIONS = 2
ROLES = ("produce", "coordinator", "fetch", "frontdoor")
PAUSES_S = (4.0, 20.0)
FAULTS_QUICK = 3
MINUTES = float(os.environ.get("MINUTES", "10"))


def _fault(cluster: Cluster, chance: random.Random) -> None:
    role = chance.choice(ROLES)
    if chance.random() < 0.6:
        cluster.kill_one(role, 0)
        return
    pid = cluster.signal(role, signal.SIGSTOP)
    try:
        nap(chance.choice(PAUSES_S))
    finally:
        if pid in cluster.pids(role):
            os.kill(pid, signal.SIGCONT)


def _run(tmp_path: Path, copies: Sequence[Copying], faults: int | None, seconds: float) -> None:
    """`faults` of them, or as many as there is time for."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    log.warning("SEED=%d", seed)
    chance = random.Random(seed)
    settings = {**BUNDLES, "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)}
    cluster = Cluster(data_dir=tmp_path / "data", env=settings)
    cluster.start()
    try:
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS, History(), per_s=50)
        load.start("orders", idempotent=True)
        with copying(cluster.bootstrap, TOPIC, copies, tmp_path):
            end = time.monotonic() + seconds
            done = 0
            while time.monotonic() < end and done != faults:
                nap(chance.uniform(3.0, 8.0))
                _fault(cluster, chance)
                done += 1
            load.stop()
            broken = copied(cluster.bootstrap, TOPIC, PARTITIONS, copies)
        keep(broken, cluster.story())
        assert load.errors == []
    finally:
        cluster.stop()
    assert cluster.fsck().returncode == 0


@pytest.mark.timeout(900)
def test_copies_are_exact_when_services_die(tmp_path: Path) -> None:
    _run(tmp_path, QUICK, FAULTS_QUICK, 120.0)


@pytest.mark.chaos
@pytest.mark.timeout(60 * MINUTES + 900)
def test_copies_are_exact_at_length(tmp_path: Path) -> None:
    _run(tmp_path, ALL, None, 60 * MINUTES)

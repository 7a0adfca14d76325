"""kill -9 of every process at random moments, repeatedly, while producers run.

Law: after each restart every acknowledged record is there, at the offset that was acknowledged, in order, and
none twice for idempotent producers; and `kafscale fsck` finds etcd and the store in agreement. On S3 the server
that holds the bucket is killed as well. Slices are settled and bundles deleted and swept all the while, beside segments
that partitions write for themselves. In the end every slice is settled and the sweep has left no bundle.

    make e2e-long CYCLES=50     the gate kills everything in a run of `make chaos` and in simulated time
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer, require_weed

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES
from e2e.harness.cluster import Cluster
from e2e.harness.deployment import s3_env
from e2e.harness.inside import bundles_in
from e2e.harness.law import keep, nap
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until

TOPIC = "survivors"
PARTITIONS = 3
CYCLES = int(os.environ.get("CYCLES", "50"))
SETTINGS = {**BUNDLES, "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS), "KAFSCALE_BUNDLE_DIRECT_BYTES": "500"}
"""With these producers some buffers have so much before their bundle is sealed. So the logs have slices, and segments
of their own."""
SWEEP_S = 60.0


class Everything(Protocol):
    """All processes there are."""

    cluster: Cluster

    def start(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(slots=True)
class OnDirectory:
    cluster: Cluster

    def start(self) -> None:
        self.cluster.start()

    def kill(self) -> None:
        self.cluster.kill()


@dataclass(slots=True)
class OnS3:
    """The S3 server dies first and comes last: the services have to wait for it."""

    cluster: Cluster
    server: SeaweedServer

    def start(self) -> None:
        self.server.start()
        self.cluster.start()

    def kill(self) -> None:
        self.server.kill()
        self.cluster.kill()

    def open_store(self) -> ObjectStore:
        return S3Store(self.server.s3_config())


@pytest.fixture
def on_directory(tmp_path: Path) -> Iterator[OnDirectory]:
    system = OnDirectory(Cluster(data_dir=tmp_path, env=SETTINGS))
    system.start()
    yield system
    system.kill()


@pytest.fixture
def on_s3(tmp_path: Path) -> Iterator[OnS3]:
    require_weed()
    server = SeaweedServer(tmp_path / "s3")
    server.start()
    server.wait_ready()  # makes the bucket
    cluster = Cluster(
        data_dir=tmp_path / "data", env={**SETTINGS, **s3_env(server)}, options=("--store", "s3")
    )
    system = OnS3(cluster, server)
    cluster.start()
    yield system
    system.kill()


def survive(system: Everything, cycles: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    load = Load(system.cluster.bootstrap, TOPIC, PARTITIONS, History())
    for n in range(2):
        load.start(f"idempotent{n}", idempotent=True)
        load.start(f"plain{n}", idempotent=False)
    try:
        for cycle in range(cycles):
            before = load.acknowledged()
            nap(chance.uniform(0.3, 3))  # the moment of death is what is random here
            system.kill()
            system.start()
            acknowledged = load.acknowledged() - before
            check(system, load.so_far(), f"cycle {cycle} (seed {seed}), {acknowledged} acknowledged in it")
    finally:
        load.stop()
    assert load.errors == []
    assert len(load.history.acknowledged) == len(load.history.sent)
    log = read_everything(system.cluster.bootstrap, TOPIC, PARTITIONS)
    keep(load.history.violations(log), f"the end (seed {seed})")
    done = system.cluster.fsck()
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def check(system: Everything, known: History, when: str) -> None:
    """What is not known to be sent may have been sent since: only phantoms need the later list."""
    log = read_everything(system.cluster.bootstrap, TOPIC, PARTITIONS)
    keep([law for law in known.violations(log) if not law.startswith("phantom")], when)


def nothing_is_left(system: Everything, store: Callable[[], ObjectStore]) -> None:
    """Idle instances settle every slice, and then they and the sweep delete every bundle."""
    inside = system.cluster.inside()
    until("every slice is settled", lambda: inside.slices(TOPIC) == 0, SWEEP_S)
    until("no bundle is left", lambda: bundles_in(store) == set(), SWEEP_S)
    done = system.cluster.fsck()
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_fifty_deaths_of_everything_lose_nothing(on_directory: OnDirectory) -> None:
    survive(on_directory, CYCLES)
    nothing_is_left(on_directory, on_directory.cluster.open_store)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_fifty_deaths_of_everything_and_of_the_s3_server_lose_nothing(on_s3: OnS3) -> None:
    survive(on_s3, CYCLES)
    nothing_is_left(on_s3, on_s3.open_store)

"""Bundles for an hour: partitions change hands by force, the store holds PUTs and DELETEs, instances die, bundles are
lost and come back, half-open connections flood the gRPC ports, and etcd is restored to an older state.

Not in the gate, where `test_bundle_crashes.py`, `test_lost_bundle.py` and `test_ownership.py` have each of these
deaths, losses and changes of owner once, and `tools/bundle_model` has every order of them.

Law: as everywhere under load (`under_load`); readers behind the end of the log miss nothing; in the end every slice is
settled, the sweep leaves no bundle, and `kafscale fsck` finds etcd and the store in agreement.

A forced claim ends the epoch of an owner that lives and writes. A request that is held for up to a minute arrives when
its sender has repeated it, has given it up, or is dead.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, assert_never

import pytest
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer, require_weed

from e2e.harness.behind import readers_behind
from e2e.harness.bundles import BUNDLES
from e2e.harness.cluster import Cluster
from e2e.harness.deployment import s3_env
from e2e.harness.etcd_history import keep_state, replace_state
from e2e.harness.half_open import flooded
from e2e.harness.inside import Inside, bundles_in
from e2e.harness.law import goes_on, keep, nap, under_load
from e2e.harness.load import Load
from e2e.harness.lost_bundles import lost_for_a_while
from e2e.harness.services import until
from e2e.harness.store_gate import StoreGate

MINUTES = float(os.environ.get("MINUTES", "60"))
SECTIONS = 6
RESTORE_S = 300
"""Of a roll-forward on a busy machine, with a start of everything before and after it."""
WRONG_S = (5.0, 15.0)
"""How long the processes go on in an older state of etcd."""
TOPIC = "stormy"
PARTITIONS = 64
READERS = 4
GRACE_MS = 5_000
HELD_SHARE = 0.02
HOLD_MAX_S = 60.0
CLAIM_EVERY_S = 1.0
FAULT_EVERY_S = (10.0, 40.0)
LOST_S = (2.0, 20.0)
HALF_OPEN = 800
FLOODED: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin")
SWEEP_S = 180.0
ARRIVED_S = HOLD_MAX_S + 30

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Site:
    cluster: Cluster
    gate: StoreGate
    server: SeaweedServer
    chance: random.Random

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def inside(self) -> Inside:
        return self.cluster.inside()

    def open_store(self) -> ObjectStore:
        return S3Store(self.server.s3_config())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    require_weed()
    seed = random.SystemRandom().randrange(2**32)
    log.info("seed %s", seed)
    server = SeaweedServer(tmp_path / "s3")
    server.start()
    server.wait_ready()
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    with StoreGate(host, int(port), seed) as gate:
        env = {
            **s3_env(server),
            **BUNDLES,
            "KAFSCALE_S3_ENDPOINT": gate.endpoint,
            "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS),
            "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
            "KAFSCALE_INTERNAL_TLS": "1",
        }
        cluster = Cluster(
            data_dir=tmp_path / "data",
            scale={"produce": 3, "fetch": 2},
            env=env,
            options=("--store", "s3"),
        )
        cluster.start()
        try:
            yield Site(cluster, gate, server, random.Random(seed))
        finally:
            cluster.kill()
            server.kill()


@contextmanager
def forced_claims(site: Site) -> Iterator[list[int]]:
    """Ends the epoch of one partition after another. Yields those whose head it has changed."""
    stop, done = threading.Event(), list[int]()
    inside, chance = site.inside(), random.Random(site.chance.random())

    def go_on() -> None:
        while not stop.wait(CLAIM_EVERY_S):
            partition = chance.randrange(PARTITIONS)
            if inside.end_epoch(TOPIC, partition):
                done.append(partition)

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(go_on)
        try:
            yield done
        finally:
            stop.set()
        going_on.result()


class Fault(Enum):
    DEATH = "an instance of produce or fetch dies"
    LOSS = "a bundle that a head names is lost, and comes back"
    FLOOD = "half-open connections to the gRPC ports of a service"


def storm(site: Site, minutes: float) -> Counter[Fault]:
    """Faults at random moments, at least one of each kind; how many of each there were."""
    end = time.monotonic() + 60 * minutes
    site.gate.share, site.gate.hold_max_s = HELD_SHARE, HOLD_MAX_S
    done = Counter[Fault]()
    faults = itertools.chain(Fault, iter(lambda: site.chance.choice(list(Fault)), None))
    for fault in faults:
        left_s = end - time.monotonic()
        if left_s <= 0 and all(done[each] for each in Fault):
            break
        nap(max(1.0, min(left_s / len(Fault), site.chance.uniform(*FAULT_EVERY_S))))  # the moment is random
        done[fault] += strike(site, fault)
    site.gate.share = 0.0
    return done


def strike(site: Site, fault: Fault) -> bool:
    """Whether the fault took place."""
    match fault:
        case Fault.DEATH:
            role = site.chance.choice(("produce", "fetch"))
            site.cluster.kill_one(role, site.chance.randrange(len(site.cluster.pids(role))))
            return True
        case Fault.LOSS:
            seconds = site.chance.uniform(*LOST_S)
            return lost_for_a_while(site.open_store, site.inside(), TOPIC, site.chance, seconds)
        case Fault.FLOOD:
            keep(flooded(site.cluster, site.chance.choice(FLOODED), HALF_OPEN))
            return True
        case _:
            assert_never(fault)


def restored(site: Site, load: Load) -> None:
    """etcd goes back by some seconds while everything runs, and is brought up to the bucket, as docs/backup.md says."""
    cluster, state = site.cluster, site.cluster.data_dir.parent / "etcd-state"
    keep_state(cluster, state)
    goes_on(load)
    replace_state(cluster, state)
    nap(site.chance.uniform(*WRONG_S))  # nothing is to happen in it
    cluster.kill()
    done = cluster.fsck("--roll-forward", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GAP" not in done.stdout, done.stdout
    shutil.rmtree(state)
    cluster.start()
    goes_on(load)


@pytest.mark.chaos
@pytest.mark.timeout(60 * MINUTES + 1_200 + RESTORE_S * SECTIONS)
def test_bundles_survive_an_hour_of_forced_claims_and_held_requests(site: Site) -> None:
    """Between two sections etcd is restored to an older state."""
    faults, claims = Counter[Fault](), list[int]()
    with under_load(site, TOPIC, PARTITIONS) as load:
        for section in range(SECTIONS):
            if section:
                restored(site, load)
            seeds = [site.chance.randrange(2**32) for _ in range(READERS)]
            with readers_behind(site.bootstrap, TOPIC, PARTITIONS, seeds):
                with forced_claims(site) as claimed:
                    faults += storm(site, MINUTES / SECTIONS)
                claims += claimed
                until("what was held has arrived", lambda: not site.gate.holding, ARRIVED_S)
                goes_on(load)
            counts = {fault.name: count for fault, count in faults.items()}
            log.info(
                "section %s of %s: faults %s; %s epochs ended", section + 1, SECTIONS, counts, len(claims)
            )
    log.info("held %s, %s after their sender left", dict(site.gate.held), site.gate.late)
    assert claims
    assert set(faults) == set(Fault)
    assert site.gate.held["PUT"]
    inside = site.inside()
    until("every slice is settled", lambda: inside.slices(TOPIC) == 0, SWEEP_S)
    until("no bundle is left", lambda: not bundles_in(site.open_store), SWEEP_S)
    checked = site.cluster.fsck()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert site.gate.held["DELETE"] + site.gate.held["POST"]
    assert site.gate.late

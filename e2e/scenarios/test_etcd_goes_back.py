"""etcd goes back in its history while everything runs: it is emptied, restored to an older state, or another cluster's.

Laws: no process deletes an object that holds an acknowledged record, and none begins a log or an epoch in the history
that went back. After `kafscale fsck --roll-forward` every acknowledged record is there, once for idempotent producers,
and fsck is clean. Grace times are as short as they can be, so what could be deleted would be.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer, require_weed

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.deployment import s3_env
from e2e.harness.etcd_history import keep_state, put_state, replace_state
from e2e.harness.inside import bundles_in
from e2e.harness.law import keep, nap
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until

ROUNDS: Final = int(os.environ.get("ROUNDS", "10"))
TOPICS: Final = {"orders": "true", "payments": "false"}
"""Name -> `kafscale.bundles`."""
PARTITIONS: Final = 6
PHASE_RECORDS: Final = 1_000
TIMEOUT_S: Final = 180.0
TEMPTED_S: Final = (6.0, 12.0)
"""How long the processes go on in the wrong history: several graces and sweeps."""

log = logging.getLogger(__name__)


class Event(Enum):
    EMPTIED = "emptied"
    RESTORED = "restored"
    REPLACED = "replaced"


@dataclass(slots=True)
class Site:
    cluster: Cluster
    open_store: Callable[[], ObjectStore]
    folder: Path


@pytest.fixture(params=["directory", "s3"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "directory":
        cluster = Cluster(data_dir=tmp_path / "data", scale={"produce": 2}, env=BUNDLES)
        server, open_store = None, cluster.open_store
    else:
        require_weed()
        server = SeaweedServer(tmp_path / "s3")
        server.start()
        server.wait_ready()
        env, options = {**BUNDLES, **s3_env(server)}, ("--store", "s3")
        cluster = Cluster(data_dir=tmp_path / "data", scale={"produce": 2}, env=env, options=options)
        open_store = partial(_open_s3, server)
    try:
        cluster.start()
        yield Site(cluster, open_store, tmp_path)
    finally:
        cluster.kill()
        if server is not None:
            server.kill()


def _open_s3(server: SeaweedServer) -> ObjectStore:
    return S3Store(server.s3_config())


def done(cluster: Cluster, *words: str) -> str:
    ended = subprocess.run(
        [*KAFSCALE, *words, "--data-dir", str(cluster.data_dir), *cluster.options],
        env={**os.environ, **cluster.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout + ended.stderr


def begun(cluster: Cluster) -> list[Load]:
    loads = []
    for topic, bundled in TOPICS.items():
        line = [*KAFSCALE, "topics", "create", topic, "--partitions", str(PARTITIONS)]
        line += ["--config", f"kafscale.bundles={bundled}", "-b", cluster.bootstrap]
        subprocess.run(line, check=True, timeout=TIMEOUT_S, capture_output=True)
        load = Load(cluster.bootstrap, topic, PARTITIONS, History())
        load.start("idempotent", idempotent=True)
        load.start("plain", idempotent=False)
        loads.append(load)
    return loads


def write_on(loads: list[Load]) -> None:
    for load in loads:
        wanted = load.acknowledged() + PHASE_RECORDS
        until(f"{wanted} records are acknowledged", partial(_has, load, wanted), TIMEOUT_S)


def _has(load: Load, wanted: int) -> bool:
    return load.acknowledged() >= wanted


def another_cluster(folder: Path) -> Path:
    """The state of an etcd that has the same topics with other ids, and records of them."""
    other = Cluster(data_dir=folder / "other", env=BUNDLES)
    try:
        other.start()
        loads = begun(other)
        write_on(loads)
        for load in loads:
            load.stop()
        keep_state(other, folder / "other-state")
    finally:
        other.kill()
    return folder / "other-state"


def goes_back(site: Site, event: Event, other: Path, chance: random.Random, loads: list[Load]) -> Path | None:
    """Returns the state with which a roll-forward begins, as an operator has it. None: that which etcd has."""
    match event:
        case Event.EMPTIED:
            replace_state(site.cluster, None)
        case Event.RESTORED:
            state = site.folder / f"state-{chance.getrandbits(32):08x}"
            keep_state(site.cluster, state)
            write_on(loads)
            replace_state(site.cluster, state)
        case Event.REPLACED:
            state = site.folder / f"state-{chance.getrandbits(32):08x}"
            keep_state(site.cluster, state)
            write_on(loads)
            replace_state(site.cluster, other)
            return state
    return None


def survive(site: Site, event: Event, rounds: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    cluster = site.cluster
    other = another_cluster(site.folder) if event is Event.REPLACED else Path()
    loads = begun(cluster)
    for number in range(rounds):
        write_on(loads)
        state = goes_back(site, event, other, chance, loads)
        known = bundles_in(site.open_store)
        nap(chance.uniform(*TEMPTED_S))  # nothing may happen in it
        left = bundles_in(site.open_store)
        cluster.kill()
        if state is not None:
            put_state(cluster, state)
        shown = done(cluster, "fsck", "--roll-forward", "--yes")
        assert "GAP" not in shown, shown
        cluster.start()
        write_on(loads)
        log.info(
            "%s, round %s (seed %s): %s records acknowledged; bundles %s, deleted since %s",
            event.value,
            number,
            seed,
            sum(load.acknowledged() for load in loads),
            len(known),
            len(known - left),
        )
    for load in loads:
        load.stop()
        story = f"{event.value}, seed {seed}"
        keep(load.history.violations(read_everything(cluster.bootstrap, load.topic, PARTITIONS)), story)
        assert load.errors == []
    checked = cluster.fsck()
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("event", Event, ids=lambda event: event.value)
def test_an_etcd_that_goes_back_costs_no_record(site: Site, event: Event) -> None:
    survive(site, event, 1)


@pytest.mark.chaos
@pytest.mark.timeout(300 * ROUNDS + 600)
@pytest.mark.parametrize("event", Event, ids=lambda event: event.value)
def test_an_etcd_that_goes_back_again_and_again_costs_no_record(site: Site, event: Event) -> None:
    survive(site, event, ROUNDS)

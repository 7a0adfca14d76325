"""Readers stay behind the end of the log while its owners move segments from the tail to manifests.

Law: no answer skips an offset, and no answer denies an existing record. A checkpoint is one transaction, but readers
get it as two updates. So owners checkpoint as fast as they can, and fetch is paused for moments and then gets many
updates at once. `make chaos` has such readers under every other fault.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.harness.behind import readers_behind
from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import Cluster
from e2e.harness.law import goes_on, nap, under_load

PARTITIONS = 3
READERS = 6
QUIET_S = 20.0
FETCH_PAUSE_S = 0.2

log = logging.getLogger(__name__)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path,
        scale={"produce": 2, "fetch": 2},
        env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS), **SEGMENTS},
    )
    cluster.start()
    yield cluster
    cluster.kill()


@contextmanager
def read_under_load(cluster: Cluster, topic: str) -> Iterator[random.Random]:
    """Producers write, readers stay behind; in the end every owner has checkpointed."""
    seed = random.SystemRandom().randrange(2**32)
    log.info("seed %s", seed)
    seeds = range(seed, seed + READERS)
    with (
        under_load(cluster, topic, PARTITIONS) as load,
        readers_behind(cluster.bootstrap, topic, PARTITIONS, seeds),
    ):
        yield random.Random(seed)
        goes_on(load)
        heads = cluster.inside().heads(topic)
        assert all(head.tail and head.tail[0].base > 0 for head in heads.values()), "nobody checkpointed"


@pytest.mark.timeout(400)
def test_readers_behind_the_tail_are_never_led_past_a_record(cluster: Cluster) -> None:
    with read_under_load(cluster, "behind") as chance:
        jerks(cluster, chance, QUIET_S)


def stillness(cluster: Cluster, role: str, for_s: float, index: int = 0) -> None:
    """It hears and says nothing for a while, and then all at once."""
    pid = cluster.signal(role, signal.SIGSTOP, index)
    try:
        nap(for_s)
    finally:
        os.kill(pid, signal.SIGCONT)


def jerks(cluster: Cluster, chance: random.Random, for_s: float) -> None:
    """Fetch instances stand still for moments: events of both watches and requests wait for them together."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        pids = cluster.pids("fetch")
        stillness(cluster, "fetch", chance.uniform(0, FETCH_PAUSE_S), chance.randrange(len(pids)))
        nap(chance.uniform(0, FETCH_PAUSE_S))

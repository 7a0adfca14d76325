"""etcd is emptied, restored to an older state, and replaced by another cluster's, under load.

Laws: from that moment on no object is deleted, although every deleter runs each second, and all services say so. After
the repair of docs/backup.md every acknowledged record is there once, and fsck is clean.

    make drill ROUNDS=10        each loss ten times, on a directory and on S3

The gate has the first law by the simulator, whose etcd goes back or is emptied (docs/simulator.md).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.lost_etcd import Loss, Victim

log = logging.getLogger(__name__)

ROUNDS = int(os.environ.get("ROUNDS", "1"))


@pytest.fixture
def victim(tmp_path: Path, on_s3: bool) -> Iterator[Victim]:
    victim = Victim(tmp_path, on_s3)
    try:
        victim.start()
        yield victim
    finally:
        victim.kill()


def one_round(victim: Victim, loss: Loss) -> None:
    victim.write_on()
    counts = victim.lose(loss)
    log.info("%s", counts)
    assert counts.deleted == 0, counts
    assert counts.objects > 0, counts
    victim.repair(loss)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("on_s3", [False, True])
def test_round_after_round(victim: Victim) -> None:
    for _ in range(ROUNDS):
        for loss in Loss:
            one_round(victim, loss)
    victim.write_on()
    victim.end_complete()

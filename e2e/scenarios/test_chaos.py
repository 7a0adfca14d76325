"""One turn of the faults that matter most, with all clients of a chaos run: `make chaos` does it at length.

Laws: no acknowledged record is lost, doubled or out of order; readers behind the end are led past none; what programs
copy exactly once is exact; a transaction is whole or not there; no offset that was committed is read back older;
all clients continue after each fault; etcd restored to an older state costs no record; in the end nothing is left over,
and fsck is clean.
"""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Final

import pytest
from kafscale.testkit.seaweed import require_weed

from e2e.chaos.faults import faults
from e2e.chaos.run import Plan, chaos
from e2e.chaos.work import ORDERS
from e2e.harness.exactly_once import QUICK
from e2e.harness.law import keep

KINDS: Final = {
    "produce killed, back after its lease",
    "coordinator paused, beyond its lease",
    "fetch paused, within its lease",
    "etcd's leader killed",
    "store holds and doubles writes",
    "bundle lost for a while",
    "epoch ended by force",
    "everything killed",
}

log = logging.getLogger(__name__)


@pytest.mark.timeout(900)
def test_no_law_is_broken_by_one_turn_of_faults(tmp_path: Path) -> None:
    require_weed()
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    log.warning("SEED=%d", seed)
    kinds = [fault for fault in faults(ORDERS) if fault.kind in KINDS]
    assert len(kinds) == len(KINDS)
    run = chaos(tmp_path, Plan(seed=seed, seconds=0.0, each_kind=True, kinds=kinds, copies=QUICK), log.info)
    keep(run.violations, f"seed {seed}: {[fault.words for fault in run.faults]}")
    assert all(run.counts.values()), run.counts

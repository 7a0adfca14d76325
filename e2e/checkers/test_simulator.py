"""The simulated cluster: the laws hold under the faults of some seeds, and a seed repeats a run line by line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import plant
from tools.simulator.apart import kind_of, run, run_plan
from tools.simulator.clients import Records
from tools.simulator.plan import load
from tools.simulator.shrink import KEPT, mutant_named

RUNS = (
    ("--seed 1 --seconds 20 --pace 1 --lasting= --without transactions,shortened", "rebalances"),
    ("--seed 7 --seconds 15 --pace 2 --lasting= --restore --without group,transactions", "requests in order"),
    ("--seed 3 --seconds 20 --pace 1 --lasting= --without group,churner", "transactions committed"),
    (
        "--seed 8 --seconds 9 --pace 2 --lasting 'the store takes no PUT' --without group,transactions,churner",
        "acknowledged",
    ),
)
"""Flags, and what clients must have done more than a few times. Each run has other kinds of clients."""
FEW = 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("flags", "done"), RUNS, ids=[flags for flags, _ in RUNS])
def test_no_law_is_broken_under_faults(flags: str, done: str) -> None:
    outcome = run(shlex.split(flags))
    assert not outcome.broken
    counts = outcome.counts
    assert counts["records sent"] >= counts["acknowledged"] > FEW
    assert counts["read"] > counts["acknowledged"]
    assert counts[done] > FEW
    assert sum(outcome.faults.values()) > 0


@pytest.mark.timeout(600)
def test_a_seed_repeats_a_run() -> None:
    lines = lines_of(5, 10)
    assert len(lines) > 20
    assert lines_of(5, 10) == lines


def lines_of(seed: int, seconds: int) -> list[str]:
    """In a process with the hash seed of `make simulate`."""
    flags = (*f"--seed {seed} --seconds {seconds} --pace 2 --log-level info --lasting".split(), "")
    command = (sys.executable, "-m", "tools.simulator", *flags)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


PLANS = sorted(KEPT.glob("*.json"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_that_once_broke_a_law_breaks_none(path: Path) -> None:
    assert run_plan(load(path).plan).broken == []


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [each for each in PLANS if load(each).mutant], ids=lambda path: path.stem)
def test_it_breaks_its_law_with_its_mistake(path: Path, tmp_path: Path) -> None:
    kept = load(path)
    plant(mutant_named(kept.mutant), tmp_path)
    assert kind_of(kept.law) in {kind_of(law) for law in run_plan(kept.plan, tmp_path).broken}


def test_a_reader_that_sees_another_value_than_before_is_a_broken_law() -> None:
    records = Records()
    for value in (b"p:1:0", b"p:1:0", b"p:2:0"):
        records.seen(0, 7, value)
    assert records.broken == ["divergent: 0/7 was b'p:1:0', and is b'p:2:0'"]

"""The simulated cluster: the laws hold under the faults of some seeds, and a seed repeats a run line by line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools.simulator.apart import run
from tools.simulator.clients import Records

SECONDS = "30"
SEEDS = (("1", ()), ("2", ("--restore",)), ("4", ("--pace", "0.2")))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "flags"), SEEDS)
def test_no_law_is_broken_under_faults(seed: str, flags: tuple[str, ...]) -> None:
    outcome = run(["--seed", seed, "--seconds", SECONDS, *flags])
    assert not outcome.broken
    sent, acknowledged, read = (outcome.counts[name] for name in ("records sent", "acknowledged", "read"))
    assert sent >= acknowledged > 50
    assert read > acknowledged
    assert outcome.counts["rebalances"] > 5
    assert outcome.counts["commits of members"] > 20
    assert outcome.counts["transactions committed"] > 5
    assert outcome.counts["records copied exactly once"] > 5
    assert sum(outcome.faults.values()) > 3


@pytest.mark.timeout(600)
def test_a_seed_repeats_a_run() -> None:
    first = lines_of(5, 15)
    assert len(first.splitlines()) > 20
    assert lines_of(5, 15) == first
    assert lines_of(6, 5) != first


def lines_of(seed: int, seconds: int) -> str:
    """In a process with the hash seed of `make simulate`."""
    flags = f"--seed {seed} --seconds {seconds} --log-level info".split()
    command = (sys.executable, "-m", "tools.simulator", *flags)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_reader_that_sees_another_value_than_before_is_a_broken_law() -> None:
    records = Records()
    for value in (b"p:1:0", b"p:1:0", b"p:2:0"):
        records.seen(0, 7, value)
    assert records.broken == ["divergent: 0/7 was b'p:1:0', and is b'p:2:0'"]

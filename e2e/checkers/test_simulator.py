"""The simulated cluster: the laws hold under the faults of some seeds, and a seed repeats a run line by line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tools.simulator.clients import Records

SECONDS = 30
SEEDS = ((1, ()), (2, ("--restore",)), (4, ()))
SUMMARY = re.compile(
    r"\*\* (\d+) records sent, (\d+) acknowledged, (\d+) read; .* (\d+) rebalances, (\d+) commits .* (\d+) faults:"
)


def run(seed: int, seconds: float, *flags: str) -> subprocess.CompletedProcess[str]:
    """In a process with the hash seed of `make simulate`."""
    command = (
        sys.executable,
        "-m",
        "tools.simulator",
        "--seed",
        str(seed),
        "--seconds",
        str(seconds),
        *flags,
    )
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "flags"), SEEDS)
def test_no_law_is_broken_under_faults(seed: int, flags: tuple[str, ...]) -> None:
    ended = run(seed, SECONDS, *flags)
    summary = SUMMARY.search(ended.stdout)
    assert summary is not None, ended.stdout[-4_000:] + ended.stderr[-4_000:]
    sent, acknowledged, read, rebalances, commits, faults = map(int, summary.groups())
    assert ended.returncode == 0, ended.stdout[-4_000:]
    assert sent >= acknowledged > 100
    assert read > acknowledged
    assert rebalances > 3
    assert commits > 20
    assert faults > 3


@pytest.mark.timeout(600)
def test_a_seed_repeats_a_run() -> None:
    first = run(5, 15, "--log-level", "info").stdout
    assert len(first.splitlines()) > 20
    assert run(5, 15, "--log-level", "info").stdout == first
    assert run(6, 5, "--log-level", "info").stdout != first


def test_a_reader_that_sees_another_value_than_before_is_a_broken_law() -> None:
    records = Records()
    for value in (b"p:1:0", b"p:1:0", b"p:2:0"):
        records.seen(0, 7, value)
    assert records.broken == ["divergent: 0/7 was b'p:1:0', and is b'p:2:0'"]

"""CPU seconds of a system: every process of it, and children that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from bench import spent as module
from bench.results import CPU_PARTS, PER_100K, Line, of_rounds
from bench.spent import TICKS_PER_S, Spent, cpu_of, spent
from bench.systems import Flushed
from e2e.harness.cluster import family

BURNS_S = 0.3
TICK_S = 1 / TICKS_PER_S
BURN = f"import time\nwhile time.process_time() < {BURNS_S}: pass"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
lives = subprocess.Popen([sys.executable, "-c", {BURN!r} + "\\nprint(1, flush=True)\\nimport sys; sys.stdin.read()"])
sys.stdin.read()
"""


@dataclass
class Counted:
    """A system whose processes are given, and whose counters rise with each reading."""

    parts: Mapping[str, Sequence[int]]
    counters: list[Flushed | None] = field(default_factory=lambda: [None, None])
    bootstrap: str = ""
    lines: frozenset[Line] = frozenset()

    def start(self) -> None: ...

    def restart(self) -> float:
        return 0.0

    def stop(self) -> None: ...

    def memory(self) -> Mapping[str, int]:
        return {}

    def processes(self) -> Mapping[str, Sequence[int]]:
        return self.parts

    def flushed(self) -> Flushed | None:
        return self.counters.pop(0)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)


def test_a_child_that_ended_and_one_that_lives_are_counted_once_each() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the second child has used its time
        seconds = cpu_of(family(parent.pid))
        alone = cpu_of([parent.pid])
        assert seconds >= 2 * (BURNS_S - TICK_S)
        assert BURNS_S - TICK_S <= alone <= seconds - (BURNS_S - TICK_S)


def test_a_process_that_is_gone_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert cpu_of([child.pid]) == 0.0


@pytest.mark.usefixtures("settled")
def test_only_what_is_used_during_the_load_counts() -> None:
    def burn() -> str:
        until = time.process_time() + BURNS_S
        while time.process_time() < until:
            pass
        return "done"

    own = family(os.getpid())  # this process, which has used seconds before
    done, cost = spent(Counted({"broker": own}), burn)
    assert done == "done"
    assert BURNS_S - 2 * TICK_S <= cost.total < cpu_of(own)
    assert cost.records_per_flush == ()


@pytest.mark.usefixtures("settled")
def test_flushes_are_those_of_the_load() -> None:
    system = Counted({}, [Flushed(records=1_000, flushes=900), Flushed(records=1_300, flushes=910)])
    _, cost = spent(system, lambda: None)
    assert cost.records_per_flush == (30.0,)


def test_nothing_that_was_flushed_is_no_figure() -> None:
    assert Spent(parts={}, flushed=Flushed(records=0, flushes=0)).records_per_flush == ()


def test_the_total_comes_first_and_only_kafscale_has_parts() -> None:
    parts = {part: float(number) for number, part in enumerate(CPU_PARTS)}
    ours, other = Spent(parts=parts, flushed=None), Spent(parts={"broker": 8.0}, flushed=None)
    assert ours.per(2.0) == (7.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    assert other.per(2.0) == (4.0,)


def test_a_system_without_parts_has_the_first_columns_of_the_line() -> None:
    line = Line.PRODUCERS_64
    found = of_rounds(line.columns, [(3_000.0, 18.0, 40.0, 18.1), (3_100.0, 17.0, 41.0, 18.3)])
    assert found.columns == ("acked/s", "p50 ms", "p99 ms", PER_100K)
    assert found.median[-1] == pytest.approx(18.2)

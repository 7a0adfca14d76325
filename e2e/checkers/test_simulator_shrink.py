"""A failing run is made as small as its law allows, and a total adds up the runs of many seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tools.simulator import many, shrink
from tools.simulator.apart import kind_of
from tools.simulator.faults import Fault
from tools.simulator.plan import Kept, Plan, drawn
from tools.simulator.run import Outcome, client_names

LAW = "lost: acknowledged at 0/7"


def test_what_is_not_needed_is_taken_out() -> None:
    asked: list[Sequence[int]] = []

    def still(rest: Sequence[int]) -> bool:
        asked.append(rest)
        return {3, 11} <= set(rest)

    assert shrink.fewer(range(20), still) == [3, 11]
    assert len(asked) < 40


def test_a_law_that_breaks_without_anything_leaves_nothing() -> None:
    assert shrink.fewer(range(20), lambda _: True) == []


def named(fault: Fault) -> tuple[str, tuple[str, ...], float]:
    """It may be moved in time."""
    return fault.kind, fault.nodes, fault.lasts_s


def test_a_plan_keeps_the_faults_and_the_client_without_which_its_law_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = drawn(7, 300.0)
    needed = (plan.faults[4], plan.faults[20])

    def run_plan(tried: Plan, _shadow: Path | None) -> Outcome:
        """The law breaks by two faults and one client; every third seed breaks another law."""
        there = {named(each) for each in needed} <= {named(each) for each in tried.faults}
        ends_s = max((each.at_s + each.lasts_s for each in tried.faults), default=0.0)
        if not there or "producer-1" in tried.without or tried.seconds < min(ends_s + 4, 300):
            return Outcome([])
        return Outcome([LAW] if tried.seed % 3 else ["stuck: reader-1 has no answer"])

    monkeypatch.setattr(shrink, "run_plan", run_plan)
    seen: list[Kept] = []
    kept = shrink.shrink(plan, None, 3, seen.append)
    assert kept is not None
    assert kept == seen[-1]
    assert kept.law == LAW
    small = kept.plan
    assert [named(each) for each in small.faults] == [named(each) for each in needed]
    assert small.without == tuple(name for _, name in client_names() if name != "producer-1")
    assert small.settings == {}
    assert small.instances == 1
    end_s = max(each.at_s + each.lasts_s for each in small.faults)
    assert end_s + 4 <= small.seconds < end_s + 6
    assert small.faults[0].at_s == pytest.approx(shrink.FIRST_FAULT_S)


def test_a_plan_that_breaks_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "run_plan", lambda *_: Outcome([]))
    assert shrink.shrink(drawn(7, 30.0), None, 3, lambda kept: pytest.fail(str(kept))) is None


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        ("lost: b'x' at 0/7", "lost"),
        ("failed: produce-1: AssertionError('a: b')", "failed: AssertionError"),
        ("nothing was read", "nothing was read"),
    ],
)
def test_two_breaches_of_one_law_have_one_kind(law: str, kind: str) -> None:
    assert kind_of(law) == kind


def test_the_total_of_many_seeds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = Outcome([], 1_800.0, 40.0, {"records sent": 5}, {"kill": 2, "pause": 1})
    ends = {"3": good, "4": replace(good, broken=[LAW])}
    monkeypatch.setattr(many, "run", lambda flags: ends[flags[1]])
    monkeypatch.setattr("sys.argv", ["many", "--from-seed", "3", "--seeds", "2"])
    assert many.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "seed 3: 1800 s, 40 s of CPU, 3 faults, 5 records",
        f"seed 4: 1800 s, 40 s of CPU, 3 faults, 5 records, 1 laws broken: {LAW}",
        "2 seeds: 1.0 simulated hours, 80 s of CPU (45 simulated seconds for each), 6 faults, 1 seeds broke a law",
        "faults: kill 4, pause 2",
        "clients: records sent 10",
        f"seed 4: {LAW}",
    ]

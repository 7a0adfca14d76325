"""Plans of the simulator: a seed draws the same plan again, a file gives it back, and its faults keep their rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tools.simulator.faults import AT_ONCE_MAX, KINDS
from tools.simulator.plan import LEFT_OUT, Kept, drawn, dump, load
from tools.simulator.run import client_names, left_out
from tools.simulator.world import nodes_of

SEEDS = range(1, 40)


def test_a_seed_draws_the_same_plan_again_and_another_seed_another() -> None:
    plans = [drawn(seed, 300.0, restores=seed % 2 == 0) for seed in SEEDS]
    assert plans == [drawn(seed, 300.0, restores=seed % 2 == 0) for seed in SEEDS]
    assert all(one.faults != other.faults for one, other in pairwise(plans))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_plan_is_what_its_file_says(seed: int, tmp_path: Path) -> None:
    kept = Kept(law="lost: x", mutant="a mutant", plan=drawn(seed, 300.0, restores=seed == 2))
    (tmp_path / "plan.json").write_text(dump(kept))
    assert load(tmp_path / "plan.json") == kept


def test_all_kinds_of_faults_are_drawn_and_end_in_time_and_are_few_at_once() -> None:
    kinds = set()
    for seed in SEEDS:
        faults = drawn(seed, 300.0).faults
        kinds |= {fault.kind for fault in faults}
        assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
        for fault in faults:
            assert fault.at_s + fault.lasts_s < 300.1
            at_once = [each for each in faults if each.at_s <= fault.at_s < each.at_s + each.lasts_s]
            assert len(at_once) <= AT_ONCE_MAX, at_once
    assert kinds == set(KINDS)


def test_a_kind_that_is_new_changes_no_other_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that it displaces, as only few happen at once."""
    before = [fault for fault in drawn(3, 3_000.0).faults if fault.kind != "drain"]
    monkeypatch.delitem(KINDS, "drain")
    monkeypatch.setitem(KINDS, "sleep", KINDS["kill"])
    after = drawn(3, 3_000.0).faults
    assert sum(fault in after for fault in before) > 0.8 * len(before)


def test_each_kind_of_client_runs_in_many_seeds_and_is_left_out_in_many() -> None:
    kinds = {kind for kind, _ in client_names()}
    assert set(LEFT_OUT) < kinds
    for kind in LEFT_OUT:
        runs = [kind not in drawn(seed, 30.0).without for seed in SEEDS]
        assert 10 < sum(runs) < len(runs) - 5, kind
    plan = replace(drawn(1, 30.0), without=("group", "reader-2"))
    assert {name.partition("-")[0] for name in left_out(plan)} == {"group", "reader"}


def test_names_of_processes_and_clients_are_unique() -> None:
    names = [*nodes_of(3), *(name for _, name in client_names())]
    assert len(names) == len(set(names))

"""What commits cost: the table of docs/performance-history.md."""

from __future__ import annotations

from collections.abc import Mapping

from bench.results import Measured, Run, of_rounds
from bench.transactions import BESIDE, CASES, COLUMNS, SETUPS, VISIBLE, table

FLUSH = tuple(COLUMNS.values())[:4]
COMMIT = tuple(COLUMNS.values())[:6]


def run(**systems: Mapping[str, Measured]) -> Run:
    """Of systems by their names with _ for -."""
    return Run(
        began="2026-12-01T10:00",
        commit="1a2b3c4d",
        machine={"cores": 2},
        versions={},
        quick=False,
        rounds=1,
        systems={name.replace("_", "-"): cases for name, cases in systems.items()},
    )


def figures(shares: Mapping[int, float], rate: float = 1_000.0) -> dict[str, Measured]:
    """Of all cases: `rate` with a flush, and a share of it by protocol."""
    found = {VISIBLE.name: of_rounds(tuple(COLUMNS.values()), [(1, 2, 3, 4, 5.5, 60, 7, 800)])}
    for case in CASES[1:]:
        if case.protocol == 0:
            found[case.name] = of_rounds(FLUSH, [(rate, 9, 1, 2)])
        else:
            found[case.name] = of_rounds(COMMIT, [(rate * shares[case.protocol], 9, 1, 2, 3, 4)])
    return found


def rows(of: Run) -> dict[str, list[str]]:
    """Cells by the first one."""
    return {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("|") for line in table(of).splitlines())
    }


def test_a_share_is_of_the_same_producer_that_flushes_and_is_missed_below_its_goal() -> None:
    found = rows(run(kafscale_dir=figures({1: 0.85, 2: 0.85})))
    assert found["flush each 100 ms, paced, records/s"] == ["", "1,000"]
    assert found["commit each 100 ms with TV2, paced"] == ["80%", "85% (85% to 85%)"]
    assert found["commit each second with TV2, saturated"] == ["90%", "85% (85% to 85%), missed"]
    assert found["commit each second with TV1, saturated"] == ["90%", "85% (85% to 85%), missed"]
    assert found["commit each 100 ms with TV1, saturated"] == ["", "85% (85% to 85%)"]


def test_a_goal_is_met_at_its_bound() -> None:
    found = rows(run(kafscale_dir=figures({1: 0.9, 2: 0.8})))
    assert found["commit each second with TV1, paced"] == ["90%", "90% (90% to 90%)"]
    assert found["commit each 100 ms with TV2, paced"] == ["80%", "80% (80% to 80%)"]


def test_a_share_is_the_median_of_the_rounds_each_beside_the_flush_of_the_same_round() -> None:
    case = CASES[2]
    found = {
        case.flushes.name: of_rounds(FLUSH, [(100, 1, 1, 1), (1_000, 1, 1, 1), (10, 1, 1, 1)]),
        case.name: of_rounds(COMMIT, [(90, 1, 1, 1, 1, 1), (500, 1, 1, 1, 1, 1), (7, 1, 1, 1, 1, 1)]),
    }
    visible = figures({1: 1, 2: 1})[VISIBLE.name]
    cells = rows(run(kafscale_dir={VISIBLE.name: visible, **found}))[case.what]
    assert cells == ["80%", "70% (50% to 90%), missed"]


def test_apache_kafka_has_no_goal_and_a_case_that_it_has_not_is_a_dash() -> None:
    some = {case.name: figures({1: 0.1, 2: 0.1})[case.name] for case in BESIDE}
    found = rows(run(kafka=some))
    assert found["commit each 100 ms with TV2, paced"] == ["80%", "10% (10% to 10%)"]
    assert found["commit each second with TV1, paced"] == ["90%", "-"]


def test_times_are_those_of_one_record_in_each_partition() -> None:
    found = rows(run(kafscale_dir=figures({1: 1, 2: 1})))
    assert found["EndTxn, p50 and p99, ms"] == ["", "5.5, 60"]
    assert [cells for what, cells in found.items() if "read_committed" in what] == [["", "7, 800"]]


def test_cases_have_names_of_their_own_and_each_is_compared_with_one_that_is_measured() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    for setup in SETUPS.values():
        measured = {case.name for case in setup.cases}
        assert all(case.flushes.name in measured for case in setup.cases if not case.follow)

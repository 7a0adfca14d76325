"""docs/performance.md is what the newest run measured, and bench/results/ keeps runs without loss."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.__main__ import folder_of
from bench.columns import CLASSES, FLUSHED
from bench.goals import GOAL_LINES, GOAL_RESULTS, GOAL_SYSTEMS, GOALS, goals
from bench.lines import PARTS, named
from bench.page import BEHIND, NO_CPU, PAGE, PICTURES, about, files, filled, panels, table
from bench.picture import LIGHT, drawn
from bench.results import (
    PER_100K,
    RESULTS,
    Line,
    Run,
    differences,
    newest,
    of_rounds,
    read,
    rounds_of,
    written,
)
from bench.systems import SYSTEMS
from bench.transactions import COMMIT_RESULTS


def run(**systems: dict[Line, list[tuple[float, ...]]]) -> Run:
    """Of systems by their names with _ for -."""
    measured = {
        name.replace("_", "-"): {
            line.name.lower(): of_rounds(line.columns, rounds) for line, rounds in lines.items()
        }
        for name, lines in systems.items()
    }
    return Run(
        began="2026-12-01T10:00",
        commit="1a2b3c4d",
        machine={"cores": 2},
        versions={"java": "17"},
        quick=False,
        rounds=3,
        systems=measured,
    )


WIDE = Line.TWELVE_PARTITIONS
BOTH = run(kafscale_dir={WIDE: [(41_000,), (42_123,), (43_000,)]}, kafka_flush={WIDE: [(21_000,)]})


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "2026-12-01T1000.json"
    path.write_text(written(BOTH))
    assert read(path) == BOTH


def test_a_file_whose_median_does_not_follow_from_its_rounds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "2026-12-01T1000.json"
    path.write_text(written(BOTH).replace('"median":[42123', '"median":[99999'))
    with pytest.raises(msgspec.ValidationError, match="twelve_partitions"):
        read(path)


def test_a_run_that_was_stopped_has_the_rounds_of_each_system() -> None:
    assert rounds_of(BOTH, "kafscale-dir") == {WIDE: [(41_000,), (42_123,), (43_000,)]}
    assert rounds_of(BOTH, "kafka-flush") == {WIDE: [(21_000,)]}
    assert rounds_of(BOTH, "kafka") == {}


def test_each_line_is_in_one_part_and_reads_what_its_part_has_written() -> None:
    assert sorted(line.name for part in PARTS for line in part) == sorted(line.name for line in Line)
    for part in PARTS:
        assert named(line.name.lower() for line in part) == part


def test_a_run_of_another_commit_cannot_go_on() -> None:
    assert differences(BOTH, BOTH) == []
    assert differences(BOTH, msgspec.structs.replace(BOTH, commit="9f9f9f9f", rounds=1)) == [
        "commit",
        "rounds",
    ]


def test_the_newest_file_is_the_one_with_the_latest_date(tmp_path: Path) -> None:
    for name in ("2026-11-30T2200", "2026-12-01T0900", "2026-12-01"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert newest(tmp_path).stem == "2026-12-01T0900"
    goals_folder = tmp_path / "goals"
    goals_folder.mkdir()
    for name in ("2026-11-01T2200", "2026-12-01T0930"):
        (goals_folder / f"{name}.json").write_text("{}")
    assert newest(tmp_path, goals_folder) == goals_folder / "2026-12-01T0930.json"


def test_a_finished_run_stays_where_the_docs_look_for_it() -> None:
    assert folder_of(set(Line), list(SYSTEMS), 1) == RESULTS
    assert folder_of(GOAL_LINES, GOAL_SYSTEMS, 3) == GOAL_RESULTS
    assert folder_of(GOAL_LINES, GOAL_SYSTEMS, 2) is None  # a goal is the median of three rounds
    assert folder_of(GOAL_LINES, GOAL_SYSTEMS[1:], 3) is None
    assert folder_of(GOAL_LINES - {Line.ONE_PRODUCER}, GOAL_SYSTEMS, 3) is None


def test_a_cell_is_the_median_of_the_rounds() -> None:
    assert "| produce, 12 partitions, records/s | 42,123 | 21,000 |" in table(BOTH)


def test_a_row_that_no_system_has_is_left_out_and_a_missing_cell_is_a_dash() -> None:
    part = run(kafscale_dir={WIDE: [(42_000,)]}, kafka_flush={Line.RESTART: [(4.5, 2.0)]})
    assert "| produce, 12 partitions, records/s | 42,000 | - |" in table(part)
    assert "catch-up" not in table(part)


@pytest.mark.parametrize(("own", "verdict"), [(95_000.0, "95,000 | met"), (94_000.0, "94,000 | missed")])
def test_a_goal_of_a_rate_is_met_at_its_bound_and_missed_below(own: float, verdict: str) -> None:
    rows = goals(run(kafscale_dir={WIDE: [(own,)]})).splitlines()
    assert f"| {WIDE.what} | KafScale, directory | records/s | 81,833 | at least 95,000 | {verdict} |" in rows


@pytest.mark.parametrize(("own", "verdict"), [(10.0, "10 | met"), (10.1, "10.1 | missed")])
def test_a_goal_of_cpu_is_met_at_its_bound_and_missed_above(own: float, verdict: str) -> None:
    many = Line.PRODUCERS_64
    rows = goals(run(kafscale_dir={many: [(9_000, 6.5, 20.0, own)]})).splitlines()
    assert f"| {many.what} | KafScale, directory | {PER_100K} | 15.7 | at most 10 | {verdict} |" in rows


def test_a_goal_without_a_figure_is_open() -> None:
    assert goals(run()).count("| not measured | open |") == len(GOALS)


def test_each_goal_is_of_a_column_of_its_line() -> None:
    for goal in GOALS:
        assert goal.column in goal.line.columns
        assert (goal.at_least is None) != (goal.at_most is None)


CPU = (12.0, 2.0, 7.0, 0.25, 0.75, 1.5, 0.5)
"""The total, then CPU_PARTS."""
COSTS = run(
    kafscale_s3={WIDE: [(50_000, *CPU, 30.0)]},
    kafka_flush={WIDE: [(60_000, 4.25)]},
    kafka={WIDE: [(90_000,)]},
)


def test_cpu_is_the_total_and_that_of_etcd_and_the_store_in_brackets() -> None:
    assert "| produce, 12 partitions, CPU s per GB | 4.25 | 12 (etcd 1.5, store 0.5) | - |" in table(COSTS)


def test_a_run_without_cpu_makes_the_page_which_says_so() -> None:
    file = RESULTS / "2026-12-01T1000.json"
    assert "CPU" not in table(BOTH)
    assert NO_CPU in about(BOTH, file)
    assert NO_CPU not in about(COSTS, file)


def test_the_picture_leaves_out_a_panel_of_which_the_run_has_nothing() -> None:
    assert [panel.title for panel in panels(BOTH)] == ["produce to 12 partitions, records/s"]
    assert [panel.title for panel in panels(COSTS)][1:] == ["12 partitions, CPU s per GB (less is better)"]


def test_the_picture_has_each_figure_as_text_and_is_the_same_each_time() -> None:
    first = drawn(panels(COSTS), CLASSES, LIGHT)
    assert first == drawn(panels(COSTS), CLASSES, LIGHT)
    assert ">50,000<" in first
    assert ">not measured<" in first  # a system without CPU seconds
    assert f">{FLUSHED}<" in first


def test_pages_and_pictures_are_those_of_the_newest_file() -> None:
    made = files(newest(RESULTS), newest(RESULTS, GOAL_RESULTS), newest(COMMIT_RESULTS))
    assert set(made) == {PAGE, BEHIND, *PICTURES.values()}
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: run `make gen`"


def test_text_outside_of_the_marks_stays_and_a_page_without_marks_is_refused() -> None:
    page = "before\n<!-- table -->\nold\n<!-- /table -->\nafter"
    assert filled(page, "table", "new") == "before\n<!-- table -->\nnew\n<!-- /table -->\nafter"
    with pytest.raises(AssertionError, match="goals"):
        filled(page, "goals", "new")

"""docs/performance.md is what the newest run measured, and bench/results/ keeps runs without loss."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from kafscale.storage.objects import MemoryStore
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import produce

from bench.__main__ import folder_of
from bench.bare_put import Broker
from bench.columns import CLASSES, FLUSHED
from bench.goals import GOAL_LINES, GOAL_RESULTS, GOAL_SYSTEMS, goals
from bench.lines import PARTS, named
from bench.page import BEHIND, PAGE, PICTURES, files, filled, panels, table
from bench.picture import LIGHT, drawn
from bench.results import RESULTS, Line, Run, differences, newest, of_rounds, read, rounds_of, written
from bench.systems import SYSTEMS
from bench.transactions import COMMIT_RESULTS
from e2e.harness.raw import Wire

PRODUCE_VERSION = 9


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


@pytest.mark.parametrize(("own", "verdict"), [(2_000.0, "2.00x | met"), (1_999.0, "2.00x | missed")])
def test_a_goal_is_met_at_its_bound_and_missed_below(own: float, verdict: str) -> None:
    both = run(kafscale_dir={WIDE: [(own,)]}, kafka_flush={WIDE: [(1_000.0,)]})
    row = next(row for row in goals(both).splitlines() if row.startswith("| 12 partitions, directory"))
    assert verdict in row


def test_a_goal_of_a_latency_is_missed_above_its_bound() -> None:
    lone = Line.ONE_PRODUCER
    both = run(kafscale_dir={lone: [(100, 2.6, 9.0)]}, kafka_flush={lone: [(300, 1.0, 2.0)]})
    bare = run(kafscale_s3={lone: [(100, 9.9, 20.0)]}, put_and_commit={lone: [(300, 7.0, 12.0)]})
    assert "2.60x | missed" in goals(both)
    assert "+ 2.9 ms | met" in goals(bare)


def test_a_goal_without_a_figure_is_open() -> None:
    assert goals(run(kafscale_dir={WIDE: [(1.0,)]})).count("| not measured | open |") == 7


def test_the_picture_has_each_figure_as_text_and_is_the_same_each_time() -> None:
    first = drawn(panels(BOTH), CLASSES, LIGHT)
    assert first == drawn(panels(BOTH), CLASSES, LIGHT)
    assert ">42,123<" in first
    assert ">not measured<" in first  # the other panels
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


async def test_the_bare_broker_puts_the_bytes_of_each_request_before_it_answers() -> None:
    store = MemoryStore()
    server = await asyncio.start_server(Broker(0, store, None).connected, "127.0.0.1", 0)
    wire = await Wire.open(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "bench")
    records = build_batch([Record(timestamp=1, key=None, value=b"x" * 100)])
    parts = [produce.ProduceRequestPartition(index=index, records=records) for index in range(2)]
    topics = [produce.ProduceRequestTopic(name="t", partition_data=parts)]
    request = produce.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)
    answer = await wire.ask(produce, PRODUCE_VERSION, request)
    found = [info async for info in store.list("bare/")]
    assert [await store.get(info.key) for info in found] == [records * 2]
    assert [part.index for part in answer.responses[0].partition_responses] == [0, 1]
    wire.close()
    server.close()

"""`kafscale sql` and `export` on a stopped data directory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from kafscale.cli.__main__ import app
from kafscale.cli.lake.sql import TABLE_ROWS_MAX
from kafscale.lake.sql import ROWS_AT_ONCE
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.records import Codec, build_batch
from typer.testing import CliRunner, Result

from .stopped import filling

COUNT = "select count(*) from records where topic like 'a-%'"


async def fill(root: Path) -> None:
    """Three topics, of 30 records each."""
    async with filling(root) as lake:
        for name in ("a-1", "a-2", "b"):
            log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, name))
            await log.append(records(10), records(20), codec=Codec.ZSTD)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    asyncio.run(fill(folder))
    return folder


async def fill_with_transactions(root: Path) -> None:
    """Offsets 0-1 aborted (marker 4), 2-3 committed (5), 6 of none, 7 open, 8 of none."""
    async with filling(root) as lake:
        log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, "paid"))
        await log.append_raw([transactional(7, records(2)), transactional(8, records(2))])
        await log.append_raw([marker(7, commit=False), marker(8, commit=True), build_batch(records(1))])
        await log.append_raw([transactional(7, records(1)), build_batch(records(1))])


def run(root: Path, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(root)], input=stdin)


def test_the_query_as_the_readme_has_it(root: Path) -> None:
    assert json.loads(run(root, "sql", COUNT, "--output", "json").stdout) == [{"count_star()": 60}]


def test_a_query_sees_what_is_committed_or_what_is_asked_for(tmp_path: Path) -> None:
    asyncio.run(fill_with_transactions(tmp_path))
    for isolation, offsets in (
        ((), [2, 3, 6]),
        (("--isolation", "read_committed"), [2, 3, 6]),
        (("--isolation", "read_uncommitted"), [0, 1, 2, 3, 6, 7, 8]),
    ):
        text = 'select list("offset" order by 1) as offsets, count(*) as n from records'
        (row,) = json.loads(run(tmp_path, "sql", text, "-o", "json", *isolation).stdout)
        assert row == {"offsets": offsets, "n": len(offsets)}


def test_a_query_comes_from_a_file_or_from_standard_input(root: Path, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(COUNT)
    assert run(root, "sql", "--file", str(tmp_path / "query.sql"), "-o", "csv").stdout == "count_star()\n60\n"
    assert run(root, "sql", "-f", "-", "-o", "csv", stdin=COUNT).stdout == "count_star()\n60\n"


def test_a_long_answer_is_whole_for_programs_and_begins_for_people(root: Path) -> None:
    text = f"select range as n from range({2 * ROWS_AT_ONCE})"
    assert json.loads(run(root, "sql", text, "-o", "json").stdout) == [
        {"n": number} for number in range(2 * ROWS_AT_ONCE)
    ]
    lines = run(root, "sql", text, "-o", "csv").stdout.splitlines()
    assert lines == ["n", *map(str, range(2 * ROWS_AT_ONCE))]
    shown = run(root, "sql", text)
    assert [line.strip() for line in shown.stdout.splitlines()] == lines[: 1 + TABLE_ROWS_MAX]
    assert shown.stderr.startswith("only the first 1,000 rows are shown")


def test_maps_intervals_and_numbers_that_are_none_have_a_form_in_json(root: Path) -> None:
    text = "select map {'a': [1]} as m, interval 90 second as i, 1 / 0 as n"
    assert json.loads(run(root, "sql", text, "-o", "json").stdout) == [
        {"m": {"a": [1]}, "i": "00:01:30", "n": "Infinity"}
    ]


@pytest.mark.parametrize("words", [("sql",), ("sql", COUNT, "--file", "-")])
def test_a_command_line_without_one_query_is_wrong(root: Path, words: tuple[str, ...]) -> None:
    done = run(root, *words)
    assert (done.exit_code, "exactly one query is needed" in done.stderr, done.stdout) == (2, True, "")


@pytest.mark.parametrize("count", [0, 1, TABLE_ROWS_MAX])
def test_an_answer_that_a_person_reads_is_shown_whole(root: Path, count: int) -> None:
    done = run(root, "sql", f"select range as n from range({count})")
    assert [line.strip() for line in done.stdout.splitlines()] == ["n", *map(str, range(count))]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sql", "select * from nowhere"), "There are the tables records, batches,"),
        (
            ("export", "nowhere", "--to", "out"),
            "topic 'nowhere' does not exist; `kafscale topics list` shows what does",
        ),
        (("export", "b", "--to", "/dev/null/out"), "Not a directory"),
    ],
)
def test_a_mistake_is_told_in_words(root: Path, words: tuple[str, ...], told: str) -> None:
    done = run(root, *words)
    assert done.exit_code == 1
    assert told in done.stderr
    assert done.stdout == ""


def test_topics_are_exported_and_the_second_time_there_is_nothing_new(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = run(root, "export", "b", "a-1", "--to", str(folder), "--where", '"offset" >= 25', "-o", "json")
    rows = json.loads(done.stdout)
    assert [(row["topic"], row["files"], row["rows"]) for row in rows] == [("a-1", 1, 5), ("b", 1, 5)]
    assert f"10 records in 2 new files of {sum(row['bytes'] for row in rows):,} bytes" in done.stderr
    assert ds.dataset(folder, partitioning="hive").count_rows() == 10
    again = run(root, "export", "b", "a-1", "--to", str(folder), "--where", '"offset" >= 25', "-o", "json")
    assert [row["files"] for row in json.loads(again.stdout)] == [0, 0]
    other = run(root, "export", "b", "--to", str(folder))
    assert other.exit_code == 1
    assert 'the folder holds an export where "offset" >= 25' in other.stderr

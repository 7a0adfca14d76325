"""SQL of a person runs in a process of its own: it reads the topics that the login may read, and nothing else, and
takes no more than its limits."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafscale.console.answers import Problem
from kafscale.console.direct import questions as limits
from kafscale.console.direct.children import Children
from kafscale.console.direct.sql import EXACT_MAX, answer_sql, cell
from kafscale.console.direct.sql_tables import TABLES as SHOWN
from kafscale.lake.sources import TABLES
from kafscale.lake.sql import TEXTS
from kafscale.operations.clusters import Cluster

from .asked import SECRET, Row, asked, children, cluster, here, rows, sql

__all__ = ["children", "cluster"]

ENDLESS = "select count(*) from range(1000000) a, range(1000000) b where a.range % 7 = b.range % 5"


async def test_a_query_is_answered_with_columns_rows_and_an_end(children: Children) -> None:
    lines = await asked(children, sql("select partition, count(*) as n from records group by 1"))
    assert lines[0] == {"read": 0, "records": 300}
    assert lines[1] == {"columns": [{"name": "partition", "type": "int32"}, {"name": "n", "type": "int64"}]}
    assert rows(lines) == [[0, 300]]
    assert lines[-1] == {"end": {"rows": 1, "cut": None, "notices": []}}


def file_of(lines: list[Row]) -> pa.Table:
    return pq.read_table(BytesIO(b"".join(b64decode(line["parquet"]) for line in lines if "parquet" in line)))


async def test_a_result_as_parquet_has_the_types_and_values_of_the_query(children: Children) -> None:
    huge = 2**127 - 1
    text = f'select "offset", value, {huge}::hugeint as huge from records order by 1'
    lines = await asked(children, sql(text, parquet=True))
    assert lines[-1] == {"end": {"rows": 300, "cut": None, "notices": []}}
    assert rows(lines) == []
    table = file_of(lines)
    assert table.column("offset").to_pylist() == list(range(300))
    assert table.column("value")[7].as_py() == b"order-0-7"
    assert str(table.schema.field("offset").type) == "int64"
    assert str(table.schema.field("huge").type) == "decimal128(38, 0)"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("select range as n from range(1000000)", "10,000 rows"),
        ("select repeat('x', 100000) || range as big from range(1000)", "5 MiB"),
    ],
)
async def test_a_parquet_file_ends_at_the_bounds_and_says_so(cluster: Cluster, text: str, cut: str) -> None:
    lines = await here(answer_sql, cluster, sql(text, parquet=True))
    end = lines[-1]["end"]
    assert end["cut"] == cut
    assert file_of(lines).num_rows == end["rows"] > 0
    assert sum(len(line.get("parquet", "")) for line in lines) < limits.OUTPUT_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select 1 as a, 2 as a", 'two columns have the name "a"'),
        ("select interval 1 day as age", "cast the column"),
        ("select union_value(num := 1) as u", "cast the column"),
    ],
)
async def test_what_parquet_does_not_have_is_a_sentence(cluster: Cluster, text: str, why: str) -> None:
    lines = await here(answer_sql, cluster, sql(text, parquet=True))
    assert (lines[-1]["error"], why in lines[-1]["sentence"]) == ("bad_query", True)
    assert not any("parquet" in line for line in lines)


async def test_an_empty_result_is_a_file_with_its_columns(cluster: Cluster) -> None:
    text = "select partition from records where false"
    assert file_of(await here(answer_sql, cluster, sql(text, parquet=True))).schema.names == ["partition"]


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) from records where topic = 'payroll'",
        "select count(*) from batches where topic = 'payroll'",
        "select count(*) from segments where topic = 'payroll'",
        "select count(*) from partitions where topic = 'payroll'",
        "select count(*) from topics where topic = 'payroll'",
        "select count(*) from query_table('records') where topic = 'payroll'",
        f"select count(*) from records where value_text like '%{SECRET}%'",
        "select count(*) from commits",
        "select count(*) from groups",
        "select count(*) from duckdb_views() where sql like '%payroll%'",
    ],
)
async def test_a_topic_that_the_login_may_not_read_does_not_exist(cluster: Cluster, text: str) -> None:
    assert rows(await here(answer_sql, cluster, sql(text))) == [[0]]


async def test_a_topic_that_the_login_may_read_is_there(cluster: Cluster) -> None:
    lines = await here(
        answer_sql, cluster, sql("select value_text from records where topic = 'payroll'", "payroll")
    )
    assert rows(lines)[0][0].startswith(SECRET)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select * from read_text('{file}')", "disabled"),
        ("select * from read_csv('/proc/self/environ')", "disabled"),
        ("select * from glob('/*')", "disabled"),
        ("select * from '{file}'", "does not exist"),
        ("copy (select 1) to '{file}'", "disabled"),
        ("attach '{file}'", "disabled"),
        ("load httpfs", "disabled"),
        ("install httpfs", "disabled"),
        ("select * from read_json('http://127.0.0.1:1/')", "disabled"),
        ("set memory_limit = '100GB'", "locked"),
        ("set threads = 64", "locked"),
        ("set enable_external_access = true", "annot"),
        ("set lock_configuration = false", "locked"),
        ("pragma enable_profiling", "locked"),
        ("select * from pandas_scan(1)", "No function matches"),
        ("select 1; select 2", "2 statements"),
        ("select * from children", "Catalog Error"),
    ],
)
async def test_a_query_reads_no_file_asks_no_host_and_lifts_no_limit(
    cluster: Cluster, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "file.txt"
    file.write_text(SECRET)
    lines = await here(answer_sql, cluster, sql(text.format(file=file)))
    (line,) = [each for each in lines if "error" in each]
    assert line["error"] == "bad_query"
    assert why in line["sentence"]
    assert file.read_text() == SECRET


async def test_duckdb_has_its_share_of_the_memory_and_writes_no_file(cluster: Cluster) -> None:
    text = (
        "select value from duckdb_settings() where name in ('memory_limit', 'temp_directory') order by name"
    )
    assert rows(await here(answer_sql, cluster, sql(text))) == [["512.0 MiB"], [""]]


async def test_what_needs_too_much_memory_ends_with_a_sentence_and_the_next_query_runs(
    children: Children,
) -> None:
    greedy = "select max(list_sum(l)) from (select list(range) as l from range(1000000000))"
    lines = await asked(children, sql(greedy))
    assert lines[-1]["error"] == "bad_query"
    assert "Out of Memory" in lines[-1]["sentence"]
    assert rows(await asked(children, sql("select 1"))) == [[1]]


async def test_a_query_that_does_not_end_is_stopped(children: Children) -> None:
    answer = await children.ask("s", sql(ENDLESS), wall_s=3.0)
    with pytest.raises(Problem, match="stopped after 3 s"):
        _ = [line async for line in answer]


async def test_a_query_that_computes_for_too_long_is_stopped(children: Children) -> None:
    answer = await children.ask("s", sql(ENDLESS), cpu_s=3)
    with pytest.raises(Problem, match="3 s of processor time"):
        _ = [line async for line in answer]


async def test_an_answer_is_cut_at_its_bounds_and_says_so(cluster: Cluster) -> None:
    lines = await here(answer_sql, cluster, sql("select range from range(1000000)"))
    assert lines[-1]["end"]["rows"] == limits.ROWS_MAX == len(rows(lines))
    assert lines[-1]["end"]["cut"] == "10,000 rows"
    lines = await here(answer_sql, cluster, sql("select repeat('x', 10000) from range(5000)"))
    assert lines[-1]["end"]["cut"] == "5 MiB"
    assert 0 < len(rows(lines)) < 5_000


async def test_one_session_asks_one_question_and_all_ask_two(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.console.direct.children.TURN_S", 0.1)
    long = sql(ENDLESS)
    first = await children.ask("a", long)
    with pytest.raises(Problem, match="your other question"):
        await children.ask("a", long)
    second = await children.ask("b", long)
    with pytest.raises(Problem, match="others"):
        await children.ask("c", long)
    assert "records" in await anext(first)
    await first.aclose()
    assert rows(await until_turn(children)) == [[1]]
    await second.aclose()


async def until_turn(children: Children) -> list[dict[str, object]]:
    deadline = time.monotonic() + 30
    while True:
        try:
            return await asked(children, sql("select 1"), "a")
        except Problem:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("lines", [0, 1])
async def test_nobody_who_waits_means_no_process(children: Children, lines: int) -> None:
    answer = await children.ask("a", sql(ENDLESS))
    for _ in range(lines):
        assert "records" in await anext(answer)
    await answer.aclose()
    async with asyncio.timeout(15):  # before its limit of processor time ends it
        while children._tasks:
            await asyncio.sleep(0.01)


def test_numbers_that_javascript_does_not_have_are_texts() -> None:
    assert cell(EXACT_MAX) == EXACT_MAX
    assert cell(EXACT_MAX + 1) == str(EXACT_MAX + 1)
    assert cell({"a": [1 << 60, True]}) == {"a": [str(1 << 60), True]}
    assert cell(b"\xff") == "\\xff"
    assert cell("x" * 20_000).endswith("(20,000 characters)")


def test_the_page_names_the_columns_that_exist() -> None:
    assert {name: (*schema.names, *TEXTS.get(name, ())) for name, schema in TABLES.items()} == SHOWN

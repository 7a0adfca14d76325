"""SQL over what is committed: right answers, from the segments that they need and no others."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.sql import QueryFailed, stream
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectNotFound
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import CountingStore
from kafscale.wire.records import Codec

from .queries import query


@pytest.fixture
async def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    """Three topics of five segments of ten records, a second apart."""
    store = CountingStore()
    for name in ("a-1", "a-2", "b"):
        topic = await create_topic(etcd, keyspace, name)
        log = LogBuilder(etcd, keyspace, store, topic)
        for number in range(5):
            await log.append(
                records(10, timestamp=10_000 * number, step_ms=1_000, label=f"{name}-{number}-"),
                codec=Codec(number),
            )
    return Lake(etcd, keyspace, store)


async def ask(lake: Lake, text: str) -> list[dict[str, Any]]:
    logs = await read_lake(lake)
    lake.store.read.clear()  # type: ignore[attr-defined]
    return (await query(lake, logs, text)).to_pylist()


def segments_read(lake: Lake) -> int:
    return len(lake.store.read)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "answer", "read"),
    [
        ("select count(*) as n from records", [{"n": 150}], 15),
        ("select count(*) as n from records where topic = 'b'", [{"n": 50}], 5),
        ("select count(*) as n from records where topic like 'a-%'", [{"n": 100}], 10),
        ("select count(*) as n from records where upper(topic) = 'B' and partition = 0", [{"n": 50}], 5),
        ("select count(*) as n from batches where topic = 'b' and last_offset < 20", [{"n": 2}], 2),
        ("select sum(records) as n, min(codec) as codec from batches", [{"n": 150, "codec": "gzip"}], 15),
        ("select count(*) as n from groups", [{"n": 0}], 0),
        ('select "offset" from records where topic = \'b\' and "offset" between 18 and 20', None, 2),
        ("select count(*) as n from records where timestamp >= '1970-01-01 00:00:45Z'", [{"n": 15}], 3),
        (
            "select sum(octet_length(value)) as n from records where topic = 'b' and key = 'k3'::blob",
            [{"n": 40}],
            5,
        ),
        ("select topic, segments from partitions order by 1 limit 1", [{"topic": "a-1", "segments": 5}], 0),
        ("select max(last_offset) as n from segments where topic = 'b'", [{"n": 49}], 0),
        ("select count(*) as n from topics", [{"n": 3}], 0),
    ],
)
async def test_an_answer_costs_the_segments_it_needs(
    lake: Lake, text: str, answer: list[dict[str, Any]] | None, read: int | None
) -> None:
    found = await ask(lake, text)
    assert found == answer if answer is not None else [row["offset"] for row in found] == [18, 19, 20]
    if read is not None:
        assert segments_read(lake) == read


async def test_tables_join(lake: Lake) -> None:
    text = (
        "select r.topic, count(*) as n, any_value(p.log_end) as log_end from records r "
        "join partitions p using (topic, partition) group by 1 order by 1"
    )
    assert await ask(lake, text) == [{"topic": name, "n": 50, "log_end": 50} for name in ("a-1", "a-2", "b")]


async def test_headers_and_nulls_come_through(lake: Lake) -> None:
    (row,) = await ask(lake, "select key, value, headers from records where topic = 'b' and \"offset\" = 7")
    assert (row["key"], row["value"], row["headers"]) == (b"k7", b"b-0-7...", [])


async def test_what_is_no_sql_is_told_in_words(lake: Lake) -> None:
    with pytest.raises(QueryFailed, match="nothing"):
        await ask(lake, "select nothing from records")


@pytest.mark.parametrize("text", ["", " ", "-- a comment", ";"])
async def test_a_text_without_a_query_is_one_sentence(lake: Lake, text: str) -> None:
    with pytest.raises(QueryFailed, match="the text has no query; begin it with `select`"):
        await ask(lake, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "select * from nowhere",
            "There are the tables records, batches, segments, partitions, topics, groups",
        ),
        ("select nothing from records", "Columns of records: topic, partition, offset, timestamp,"),
        ("select offset from records", '"offset" has to stand in double quotes'),
    ],
)
async def test_whoever_errs_is_told_what_there_is(lake: Lake, text: str, told: str) -> None:
    with pytest.raises(QueryFailed) as refused:
        await ask(lake, text)
    assert told in str(refused.value)


@pytest.mark.parametrize("apart", [0, 256])
async def test_topics_in_one_table_or_each_in_its_own_answer_alike(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    monkeypatch.setattr("kafscale.lake.sql.BY_TOPIC_MAX", apart)
    text = (
        'select r.topic, partition, r."offset", codec from records r join batches b using (topic, partition) '
        'where r."offset" between b.base_offset and b.last_offset and topic like \'a%\' and r."offset" = 12'
    )
    assert await ask(lake, text) == [
        {"topic": name, "partition": 0, "offset": 12, "codec": "gzip"} for name in ("a-1", "a-2")
    ]


async def test_files_of_the_machine_are_not_within_reach(lake: Lake) -> None:
    with pytest.raises(QueryFailed):
        await ask(lake, "select * from read_text('/etc/hostname')")


async def test_a_segment_that_is_gone_is_the_stores_word_and_no_answer(lake: Lake) -> None:
    logs = await read_lake(lake)
    await lake.store.delete(lake.place_of(logs[2], logs[2].segments[3]).key)
    with pytest.raises(ObjectNotFound):
        await query(lake, logs, "select count(*) from records")


async def test_a_few_rows_cost_a_few_segments(lake: Lake) -> None:
    """What is read ahead is bounded: four segments, and a batch or two that Arrow and DuckDB hold."""
    topic = await create_topic(lake.etcd, lake.keys, "long")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    for _ in range(40):
        await log.append(records(3_000))
        if len(log.head.tail) == 20:
            await log.checkpoint(keep=1)
    found = await ask(lake, "select key from records where topic = 'long' limit 1")
    assert found == [{"key": b"k0"}]
    assert segments_read(lake) <= 15


async def test_rows_are_counted_while_they_are_read(lake: Lake) -> None:
    counted: list[int] = []
    text = "select sum(\"offset\") from records where topic = 'a-1'"
    async with aclosing(stream(lake, await read_lake(lake), text, counted.append)) as parts:
        assert [part.num_rows async for part in parts] == [1]
    assert sum(counted) == 50
    assert len(counted) > 1

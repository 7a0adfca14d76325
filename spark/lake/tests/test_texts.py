"""A query on text inside bytes has values, or an error that names the remedy. It has no silent nulls."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.sql import QueryFailed, stream
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.records import Record

from .queries import query

USER = '{"user": {"name": "Zoë"}, "tags": ["a", "b"]}'
VALUES = (USER.encode(), b"\xff\xfe", None)


@pytest.fixture
async def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    """A topic with JSON, with bytes that are no text and with a deletion, and one with text that is not JSON."""
    lake = Lake(etcd, keyspace, MemoryStore())
    for name, values in (("events", VALUES), ("words", (b"hello",))):
        log = LogBuilder(etcd, keyspace, lake.store, await create_topic(etcd, keyspace, name))
        await log.append([Record(timestamp=1, key=b"k", value=value, headers=()) for value in values])
    return lake


async def column(lake: Lake, expression: str, topic: str = "events") -> list[Any]:
    text = f"select {expression} as found from records where topic = '{topic}' order by \"offset\""
    return [row["found"] for row in (await query(lake, await read_lake(lake), text)).to_pylist()]


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("value_text", USER),
        ("value ->> '$.user.name'", "Zoë"),
        ("value -> '$.tags'", '["a","b"]'),
        ("value::json ->> '$.user.name'", "Zoë"),
        ("(value::json).user.name::varchar", '"Zoë"'),
        ("try_cast(value as json) ->> '$.tags[1]'", "b"),
        ("json_extract_string(value, '$.user.name')", "Zoë"),
        ("json_array_length(value -> 'tags')", 2),
        ("value::varchar", USER),
        ("cast(value as text)", USER),
        ("value like '%Zoë%'", True),
        ("value not ilike '%zoë%'", False),
        ("contains(value_text, 'Zoë')", True),
        ("value ->> ['$.user.name', '$.tags[0]']", ["Zoë", "a"]),
        ("value || '!'", USER + "!"),
        ("format('{}!', value)", USER + "!"),
        ("printf('%s!', value)", USER + "!"),
        ("value || ':' || key", USER + ":k"),
    ],
)
async def test_text_in_bytes_has_values_and_other_bytes_are_null(
    lake: Lake, expression: str, first: object
) -> None:
    assert await column(lake, expression) == [first, None, None]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("\"offset\"::varchar || '/' || partition::text", "0/0"),
        ("{'a': [1]}::json ->> '$.a[0]'", "1"),
        ("to_json({'a': 1})::varchar", '{"a":1}'),
        ("list_transform([1], lambda x: x + 1)", [2]),
        ("octet_length(value)", len(USER.encode())),
        ("[1] || [2]", [1, 2]),
        ("concat(key, '-', partition, value)", f"k-0{USER}"),
        ("concat_ws('-', key, null, value)", f"k-{USER}"),
        ("string_agg(value, ',') over (order by \"offset\")", USER),
        ("(string_agg(value, ',') over (order by \"offset\")) ->> '$.user.name'", "Zoë"),
    ],
)
async def test_values_that_are_not_bytes_stay_as_they_are(lake: Lake, expression: str, found: object) -> None:
    assert (await column(lake, expression))[0] == found


@pytest.mark.parametrize("topics_apart", [0, 256])
async def test_text_columns_are_there_with_any_number_of_topics(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, topics_apart: int
) -> None:
    monkeypatch.setattr("kafscale.lake.sql.BY_TOPIC_MAX", topics_apart)
    assert await column(lake, "key_text || value_text", "words") == ["khello"]


async def test_columns_keep_their_names(lake: Lake) -> None:
    text = "select value ->> '$.a', max(value::varchar), key_text from records where topic = 'events' group by all"
    found = await query(lake, await read_lake(lake), text)
    assert found.column_names == ["(\"value\" ->> '$.a')", 'max(CAST("value" AS VARCHAR))', "key_text"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("select value ->> '$.a' from records where topic = 'words'", "try(value ->> '$.name') gives null"),
        ("select lower(value) from records", "Their text is in key_text and value_text"),
        ("select decode(value) from records where topic = 'events'", "and so do key_text and value_text"),
        ("select * from events", "events is a topic. Ask for records where topic = 'events'."),
        ("select nothing from records", "headers, key_text, value_text."),
        ("select * from records where key = 'schlüssel'", "Compare and convert their text instead"),
        ("select * from records where key = 'a\\b'", "Compare and convert their text instead"),
        ("select value::int from records", "Compare and convert their text instead"),
        ("select 1; select 2", "the text has 2 statements"),
    ],
)
async def test_an_error_names_the_remedy(lake: Lake, text: str, told: str) -> None:
    with pytest.raises(QueryFailed) as refused:
        await query(lake, await read_lake(lake), text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "result",
    [
        'min_by(value, "offset")',
        'min_by(try(decode(value)), "offset")',
        "MIN(value)",
        'first_value(min_by(value, "offset")) over ()',
        "(select value from records where topic = 'events' and \"offset\" = 0)",
    ],
)
async def test_text_is_read_in_the_result_of_an_aggregate_a_window_and_a_subquery(
    lake: Lake, result: str
) -> None:
    text = f"select {result} ->> '$.user.name' as found from records where topic = 'events' group by topic"
    assert (await query(lake, await read_lake(lake), text)).to_pylist() == [{"found": "Zoë"}]


async def test_what_an_aggregate_counts_is_not_text(lake: Lake) -> None:
    text = "select to_json(count(*)) as a, sum(\"offset\")::varchar as b from records where topic = 'events'"
    ((a, b),) = [row.values() for row in (await query(lake, await read_lake(lake), text)).to_pylist()]
    assert int(a) >= 1
    assert int(b) == int(a) * (int(a) - 1) // 2


async def test_texts_are_joined_as_texts(lake: Lake) -> None:
    text = "select string_agg(value, ',') as found from records where topic = 'events'"
    assert (await query(lake, await read_lake(lake), text)).to_pylist() == [{"found": USER}]


async def test_try_gives_null_for_a_record_that_is_not_json(lake: Lake) -> None:
    assert await column(lake, "try(value ->> '$.a')", "words") == [None]


@pytest.mark.parametrize(
    ("condition", "noticed"),
    [
        ("topic = 'nosuch'", ["there is no topic nosuch"]),
        (
            "'nosuch' = r.topic or topic in ('events', 'other')",
            ["there is no topic nosuch", "there is no topic other"],
        ),
        ("topic = 'events' and key_text = 'nosuch'", []),
        ("topic <> 'nosuch'", []),
    ],
)
async def test_a_query_about_a_topic_that_does_not_exist_says_so(
    lake: Lake, condition: str, noticed: list[str]
) -> None:
    heard: list[str] = []
    text = f"select count(*) from records r where {condition}"
    assert [part async for part in stream(lake, await read_lake(lake), text, noticed=heard.append)]
    assert heard == noticed


@pytest.mark.parametrize(("column", "noticed"), [("value", True), ("value_text", False)])
async def test_a_statement_that_reads_no_text_in_bytes_says_so(
    lake: Lake, column: str, noticed: bool
) -> None:
    heard: list[str] = []
    name = f"{column} ->> '$.user.name' as name"
    rows = f"select partition, {name} from records where topic = 'events' and \"offset\" = 0"
    text = f"pivot ({rows}) on name using count(*)"
    (part,) = [part async for part in stream(lake, await read_lake(lake), text, noticed=heard.append)]
    assert ("Zoë" in part.schema.names, any("key_text and value_text" in line for line in heard)) == (
        not noticed,
        noticed,
    )


@pytest.mark.parametrize("text", ["show tables", "SHOW ALL TABLES;"])
async def test_show_tables_lists_the_documented_tables_alone(lake: Lake, text: str) -> None:
    found = (await query(lake, await read_lake(lake), text)).to_pylist()
    assert [row["name"] for row in found][:2] == ["records", "batches"]
    assert len(found) == 8

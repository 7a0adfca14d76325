"""SQL over a lake without Spark, by DuckDB.

DuckDB passes the columns and the condition of each table, and pulls rows in a separate thread while they are read.
A small query takes less time than the start of a JVM. For large queries use Spark.

Law: a query reads the tables and nothing else, and cannot change what it may use. DuckDB's configuration is locked
before the text is parsed: without that, a query could set its own memory limit and number of threads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

import duckdb
import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.datasets import Counted, Pulled
from kafscale.lake.sources import TABLES, Seen, TableSource
from kafscale.lake.texts import MACRO, understood

BY_TOPIC: Final = ("records", "batches")
"""Tables that are a union of one table per topic. So a condition that DuckDB does not pass down, for example LIKE or a
function, also skips topics."""
BY_TOPIC_MAX: Final = 256
"""With more topics there is one table instead, because DuckDB takes half a millisecond to plan each part of a union."""
TEXTS: Final = {"records": {"key_text": "try(decode(key))", "value_text": "try(decode(value))"}}
"""Columns that are computed from others, by table. Null if the bytes are not UTF-8."""
SHOW_TABLES: Final = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)

Config = dict[str, str | bool | int | float | list[str]]
CONFIG: Final[Config] = {
    "threads": 1,
    "enable_external_access": False,
    "python_enable_replacements": False,  # a name that is no table must not be a variable of this program
}
LOCKED: Final = "set lock_configuration = true"
ROWS_AT_ONCE: Final = 65_536


class QueryFailed(Exception):
    """DuckDB's message about a query that it cannot run, with the tables or columns that exist."""


async def stream(
    lake: Lake,
    logs: Sequence[Log],
    text: str,
    counted: Counted = lambda _: None,
    noticed: Callable[[str], None] = lambda _: None,
    *,
    memory_bytes: int | None = None,
    seen: Seen | None = None,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Runs a query over the tables of TABLES. The result comes in parts, so that a long one is never whole in memory.

    There is at least one part, which has the columns. `counted` is called with the number of rows read, `noticed` with
    a sentence for each topic that the query names and that does not exist. With `memory_bytes` DuckDB takes no more and
    writes no file; by default it takes 80 % of the memory, and what is larger is sorted in the folder `.tmp`.
    `seen`: what else a reader sees who may not see everything. Raises QueryFailed, and what reading raises: StoreError,
    EtcdError, CorruptSegment.
    """
    made = partial(_tables, lake, logs, counted, seen)
    topics = frozenset(log.topic.name for log in logs)
    config = CONFIG
    if memory_bytes is not None:
        config = CONFIG | {"memory_limit": f"{memory_bytes}B", "temp_directory": ""}
    async with _asked(made, config, topics, text, noticed) as relation:
        reader = await asyncio.to_thread(relation.to_arrow_reader, ROWS_AT_ONCE)
        batch = await asyncio.to_thread(next, reader, None)
        if batch is None:
            batch = pa.RecordBatch.from_pylist([], schema=reader.schema)
        while batch is not None:
            yield batch
            batch = await asyncio.to_thread(next, reader, None)


@asynccontextmanager
async def _asked(
    made: Callable[[], tuple[dict[str, Pulled], list[str]]],
    config: Config,
    names: frozenset[str],
    text: str,
    noticed: Callable[[str], None],
) -> AsyncIterator[duckdb.DuckDBPyRelation]:
    """The query, not run yet. DuckDB is only called in threads, where it waits for the event loop's reads."""
    tables, views = made()
    connection = duckdb.connect(config=config)
    try:
        query = await asyncio.to_thread(_prepared, connection, tables, views, text)
        for unknown in sorted(query.topics - names):
            noticed(f"there is no topic {unknown}")
        if query.bytes_stay:
            noticed(
                "bytes are not read as text in this kind of statement: write key_text and value_text for key and value"
            )
        yield query.relation
    except (duckdb.Error, OSError, pa.ArrowException) as refused:
        for table in tables.values():
            if table.failure is not None:
                raise table.failure from refused
        raise QueryFailed(_words(refused, text, names)) from refused
    finally:
        connection.interrupt()  # a cancelled query still waits in its thread for rows
        await asyncio.to_thread(connection.close)
        for table in tables.values():
            await table.close()


@dataclass(frozen=True, slots=True)
class _Query:
    """A query that DuckDB understands, and the topics that it names.

    `bytes_stay`: it names keys or values, and DuckDB would read them in its escaped form.
    """

    relation: duckdb.DuckDBPyRelation
    topics: frozenset[str]
    bytes_stay: bool


def _prepared(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Pulled], views: Sequence[str], text: str
) -> _Query:
    connection.execute("set timezone = 'UTC'")
    connection.execute(MACRO)
    for name, table in tables.items():
        connection.register(name, table)
    for view in views:
        connection.execute(view)
    connection.execute(LOCKED)
    if SHOW_TABLES.fullmatch(text):  # not the parts of unions
        text = f"select unnest({list(TABLES)}) as name"
    if (count := len(connection.extract_statements(text))) > 1:
        raise QueryFailed(f"the text has {count} statements; one query is run at a time")
    query = understood(connection, text)
    relation: duckdb.DuckDBPyRelation | None = connection.sql(query.text)
    if relation is None:  # there is nothing but comments
        raise QueryFailed("the text has no query; begin it with `select`, `with` or `from`")
    bytes_stay = not query.readable and re.search(r"\b(key|value)\b", text, re.IGNORECASE) is not None
    return _Query(relation, query.topics, bytes_stay)


def _tables(
    lake: Lake, logs: Sequence[Log], counted: Counted, seen: Seen | None
) -> tuple[dict[str, Pulled], list[str]]:
    """The registered datasets by name, and the views over them."""
    loop = asyncio.get_running_loop()
    whole = TableSource(lake, logs, seen)
    tables = {name: Pulled(schema, getattr(whole, name), loop, counted) for name, schema in TABLES.items()}
    topics = {name: list(some) for name, some in groupby(logs, key=lambda log: log.topic.name)}
    if not 0 < len(topics) <= BY_TOPIC_MAX:
        views = []
        for name in TEXTS:
            tables[f"{name} of all topics"] = tables.pop(name)
            views.append(_view(name, f'from "{name} of all topics"'))
        return tables, views
    sources = {name: TableSource(lake, some) for name, some in topics.items()}
    views = []
    for table in BY_TOPIC:
        schema = TABLES[table]
        rest = schema.remove(schema.get_field_index("topic"))
        del tables[table]
        parts = []
        for number, (name, source) in enumerate(sources.items()):
            part = f"{table} of topic {number}"
            tables[part] = Pulled(rest, getattr(source, table), loop, counted)
            parts.append(f'select {_text(name)} as topic, * from "{part}"')  # noqa: S608 - quoted names
        views.append(_view(table, " union all ".join(parts)))
    return tables, views


def _view(table: str, rows: str) -> str:
    texts = "".join(f", {how} as {name}" for name, how in TEXTS.get(table, {}).items())
    return f"create temp view {table} as select *{texts} from ({rows})"  # noqa: S608 - names of this module


def _text(value: str) -> str:
    """A string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def _words(refused: Exception, text: str, topics: Collection[str]) -> str:
    """DuckDB's message, and what the user can write instead."""
    words = str(refused)
    named = [name for name in TABLES if name in text.lower()]
    told = []
    match refused:
        case duckdb.CatalogException() if missing := re.search(
            r"Table with name (.+?) does not exist", words
        ):
            told.append(f"There are the tables {', '.join(TABLES)}.")
            if missing[1] in topics:
                told.append(f"{missing[1]} is a topic. Ask for records where topic = {_text(missing[1])}.")
        case duckdb.BinderException() if "BLOB" in words:
            told.append(
                "Keys and values are bytes. Their text is in key_text and value_text; decode(…) converts other bytes."
            )
        case duckdb.BinderException() if named:
            told += [
                f"Columns of {name}: {', '.join([*TABLES[name].names, *TEXTS.get(name, ())])}."
                for name in named
            ]
        case duckdb.ParserException() if "offset" in text.lower():
            told.append('As the name of a column, "offset" has to stand in double quotes.')
        case _ if "Conversion Error" in words and "decode" in text.lower():
            told.append(
                "try(decode(…)) gives null for bytes that are not text, and so do key_text and value_text."
            )
        case _ if "Conversion Error" in words and re.search(r"\bblob\b", words, re.IGNORECASE):
            told.append(
                "Keys and values are bytes. Compare and convert their text instead: key_text and value_text."
            )
        case _ if "Malformed JSON" in words:
            told.append("A record is not JSON: try(value ->> '$.name') gives null for such a record.")
    return "\n".join([words, *told])

"""SQL over a lake without Spark: DuckDB asks, the lake answers with the segments that a query needs.

`records` is no copy: DuckDB says which columns and which condition, the condition prunes logs and segments, and what is
left is read while the query runs. Small questions cost less than a JVM's start; large ones are Spark's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import FIELDS, Wanted
from kafscale.lake.pruning import SCHEMA, prune
from kafscale.lake.scan import Question, placed, scan_segments
from kafscale.lake.tables import partitions_table, segments_table, topics_table

_END: Final = object()


class QueryFailed(Exception):
    """DuckDB's words for a text that it cannot answer."""


async def query(lake: Lake, logs: Sequence[Log], text: str) -> pa.Table:
    """The answer to one query over the tables `records`, `segments`, `partitions` and `topics`.

    Raises QueryFailed, and what reading raises: StoreError, CorruptSegment.
    """
    loop = asyncio.get_running_loop()
    records = Records(lake, logs, loop)
    try:
        return await asyncio.to_thread(_ask, records, logs, text)
    except duckdb.Error as refused:
        if records.failure is not None:
            raise records.failure from refused
        raise QueryFailed(str(refused)) from refused


def _ask(records: Records, logs: Sequence[Log], text: str) -> pa.Table:
    topics = {log.topic.name: log.topic for log in logs}
    with duckdb.connect(config={"threads": 1, "enable_external_access": False}) as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("records", records)
        connection.register("segments", segments_table(logs))
        connection.register("partitions", partitions_table(logs))
        connection.register("topics", topics_table(topics.values()))
        return connection.sql(text).to_arrow_table()


class Records(ds.Dataset):  # type: ignore[misc]
    """What DuckDB takes for an Arrow dataset: of one it only asks the schema and a scanner."""

    def __init__(self, lake: Lake, logs: Sequence[Log], loop: asyncio.AbstractEventLoop) -> None:
        self._lake = lake
        self._logs = logs
        self._loop = loop
        self.failure: Exception | None = None
        self.segments_read = 0

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_how: Any,
    ) -> ds.Scanner:
        """Rows that the condition is true of; whoever asks does not look at it again."""
        names = list(SCHEMA.names if columns is None else columns)
        read = [name for name in SCHEMA.names if name in names or _says(filter, name)]
        schema = pa.schema([SCHEMA.field(name) for name in read])
        batches = self._pulled(self._scan(tuple(read), filter))
        return ds.Scanner.from_batches(batches, schema=schema, columns=names, filter=filter)

    async def _scan(
        self, names: tuple[str, ...], condition: pc.Expression | None
    ) -> AsyncIterator[pa.RecordBatch]:
        own = tuple(name for name in names if name in FIELDS)
        question = Question(wanted=Wanted(columns=own or ("offset",)))
        for log, segments in prune(self._logs, condition):
            self.segments_read += len(segments)
            async for batch in scan_segments(self._lake, log, segments, question):
                yield placed(batch, log).select(names)

    def _pulled(self, batches: AsyncIterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """DuckDB pulls in a thread of its own; reading stays in the event loop."""
        while True:
            try:
                batch = asyncio.run_coroutine_threadsafe(_next(batches), self._loop).result()
            except Exception as failure:
                self.failure = failure
                raise
            if batch is _END:
                return
            yield batch


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> object:
    return await anext(batches, _END)


def _says(condition: pc.Expression | None, name: str) -> bool:
    """Whether a condition is about a column: it cannot be asked of a table without it."""
    if condition is None:
        return False
    without = SCHEMA.remove(SCHEMA.get_field_index(name)).empty_table()
    try:
        without.filter(condition)
    except pa.ArrowInvalid:
        return True
    return False

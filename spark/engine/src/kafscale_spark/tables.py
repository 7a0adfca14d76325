"""The tables that describe the stored data.

Most have few rows, which the driver reads and one task returns to Spark. `batches` can be large, so tasks read the
headers, as they read records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import pyarrow as pa
from kafscale.lake.batches import scan_batches
from kafscale.lake.datasets import Asked
from kafscale.lake.pruning import HEADERS
from kafscale.lake.sources import TABLES, TableSource
from kafscale.runtime.settings import ServiceSettings
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafscale_spark.clusters import opened, pulled
from kafscale_spark.options import BadOption, Request
from kafscale_spark.schemas import shaped
from kafscale_spark.spans import Span, read_logs
from kafscale_spark.splits import Split, split


def table_schema(name: str) -> pa.Schema:
    if name not in TABLES:
        raise BadOption(f"there is no table {name}; there are {', '.join(TABLES)}")
    return TABLES[name]


class TableReader(DataSourceReader):
    """A table that the driver reads."""

    def __init__(self, settings: ServiceSettings, request: Request, schema: pa.Schema) -> None:
        self._settings = settings
        self._request = request
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(asyncio.run(self._read()))]

    async def _read(self) -> list[pa.RecordBatch]:
        asked = Asked(tuple(TABLES[self._request.table].names), None)
        async with opened(self._settings) as lake:
            source = TableSource(lake, await read_logs(lake, self._request))
            return [batch async for batch in getattr(source, self._request.table)(asked)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return (shaped(batch, self._schema) for batch in partition.value)


class BatchesReader(TableReader):
    """Record batches, from the headers in segments. If records were deleted since the plan, the query fails."""

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in asyncio.run(self._plan())]

    async def _plan(self) -> list[Split]:
        async with opened(self._settings) as lake:
            logs = await read_logs(lake, self._request)
        spans = [Span(log=log, first=log.start, end=log.end) for log in logs]
        return split(spans, None, self._request.target_bytes, HEADERS)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted: Split | None = partition.value
        return iter(()) if wanted is None else pulled(self._batches(wanted))

    async def _batches(self, wanted: Split) -> AsyncGenerator[pa.RecordBatch, None]:
        async with (
            opened(self._settings) as lake,
            aclosing(scan_batches(lake, wanted.log, wanted.segments)) as found,
        ):
            async for batch in found:
                yield shaped(batch, self._schema)

"""Plans and reads a batch query. The plan reads etcd once; the tasks read what was committed at that time.

A query that is planned while records are written sees each log up to its end at that moment, and never past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.runtime.settings import ServiceSettings
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kafscale_spark import filters as spark_filters
from kafscale_spark.clusters import opened
from kafscale_spark.options import BadOption, Edge, Request
from kafscale_spark.spans import ends, read_logs, spans, starts
from kafscale_spark.splits import Ask, Split, read_split, split


class RecordsReader(DataSourceReader):
    """Reads records; for sessions in which filters are not pushed down."""

    def __init__(self, settings: ServiceSettings, request: Request, schema: pa.Schema) -> None:
        if request.starting is Edge.LATEST:
            raise BadOption("a batch cannot start at the latest offset: it would be empty")
        if request.ending is Edge.EARLIEST:
            raise BadOption("a batch cannot end at the earliest offset: it would be empty")
        self._settings = settings
        self._request = request
        self._chosen_by: pc.Expression | None = None
        self._ask = Ask(schema=schema, fail_on_data_loss=request.fail_on_data_loss)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each split. Raises BadOption and DataLoss."""
        return [InputPartition(each) for each in asyncio.run(self._plan())]

    async def _plan(self) -> list[Split]:
        request = self._request
        async with opened(self._settings) as lake:
            logs = await read_logs(lake, request)
            first = await starts(lake, logs, request.starting or Edge.EARLIEST, request)
            end = await ends(lake, logs, request.ending)
        return split(spans(logs, first, end, request), self._chosen_by, request.target_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own partition, if there is no split
            return iter(())
        return read_split(self._settings, partition.value, self._ask)


class PushingReader(RecordsReader):
    """Accepts filters from Spark, so that data which cannot match is not read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        condition, self._chosen_by, left = spark_filters.take(filters)
        self._ask = replace(self._ask, condition=condition)
        return left

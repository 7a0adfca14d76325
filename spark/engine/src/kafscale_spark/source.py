"""The data source `kafscale`: Spark's entry point for records and for the tables that describe the stored data.

    spark.read.format("kafscale").option("dataDir", "data").option("subscribe", "orders").load()

Spark imports this in a new process for every plan and every task, so modules that only some need are imported late.
"""

from __future__ import annotations

from functools import cached_property

from kafscale.runtime.settings import ServiceSettings
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kafscale_spark.batch import PushingReader, RecordsReader
from kafscale_spark.clusters import settings_of
from kafscale_spark.options import BadOption, Request, parse
from kafscale_spark.schemas import arrow_schema, check, records_schema, spark_schema
from kafscale_spark.streaming import RecordsStream

RECORDS = "records"


class KafscaleSource(DataSource):
    """Options are those of `kafscale_spark.options`."""

    @classmethod
    def name(cls) -> str:
        return "kafscale"

    @cached_property
    def _request(self) -> Request:
        return parse(self.options)

    @cached_property
    def _settings(self) -> ServiceSettings:
        return settings_of(self._request)

    def schema(self) -> StructType:
        """Raises BadOption."""
        request = self._request
        if request.table == RECORDS:
            return records_schema(request.with_headers)
        from kafscale_spark.tables import table_schema

        return spark_schema(table_schema(request.table))

    def reader(self, schema: StructType) -> DataSourceReader:
        check(schema, self.schema())
        request, wanted = self._request, arrow_schema(schema)
        if request.table == RECORDS:
            kind = PushingReader if request.push_filters else RecordsReader
            return kind(self._settings, request, wanted)
        from kafscale_spark.tables import BatchesReader, TableReader

        table = BatchesReader if request.table == "batches" else TableReader
        return table(self._settings, request, wanted)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check(schema, self.schema())
        if self._request.table != RECORDS:
            raise BadOption(f"{self._request.table} cannot be streamed, only {RECORDS}")
        return RecordsStream(self._settings, self._request, arrow_schema(schema))

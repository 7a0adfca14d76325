"""Columns as Spark has them: records as its Kafka connector names and types them. Pure."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.pruning import SCHEMA
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kafscale_spark.options import BadOption

RECORDS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def records_schema(with_headers: bool) -> StructType:
    names = RECORDS if with_headers else RECORDS[:-1]
    return spark_schema(pa.schema([SCHEMA.field(name) for name in names]))


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow schema that Spark requires of the batches."""
    return to_arrow_schema(schema, timezone="UTC")


def check(wanted: StructType, whole: StructType) -> None:
    """A caller may name some of the columns, in any order, with their types. Raises BadOption."""
    known = {field.name: field.dataType.simpleString() for field in whole.fields}
    for field in wanted.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise BadOption(
                f"there is no column {field.name} {kind}; there are "
                + ", ".join(f"{name} {known[name]}" for name in known)
            )


def selected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with the schema's columns, in its order."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same as Spark's Kafka connector gives them."""
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = batch.column(field.name)
    return (null_if_empty(column) if field.name == "headers" else column).cast(field.type)


def null_if_empty(headers: pa.ListArray) -> pa.ListArray:
    """A record without headers has null there, as Spark's connector gives it (KafkaRecordToRowConverter)."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    if not pc.any(empty).as_py():
        return headers
    # Arrow accepts a mask only if the offsets are not a slice.
    offsets = pc.add(headers.offsets, pa.scalar(0, pa.int32()))
    return pa.ListArray.from_arrays(offsets, headers.values, type=headers.type, mask=empty)

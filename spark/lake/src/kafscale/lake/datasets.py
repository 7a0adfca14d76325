"""Tables that are read while a query runs, and only as far as the query needs them.

DuckDB sees each table as an Arrow dataset. It asks a dataset for its schema, and for a scanner with columns and a
condition. A table that the query does not name is not read. DuckDB pulls rows in a separate thread, while the event
loop does the reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

_END: Final = object()


@dataclass(frozen=True, slots=True)
class Asked:
    """The columns in the table's order, including those of the condition, and the condition if there is one."""

    columns: tuple[str, ...]
    condition: pc.Expression | None


Read = Callable[[Asked], AsyncGenerator[pa.RecordBatch, None]]
"""Reads rows with the requested columns. It may also return rows for which the condition is not true."""
Counted = Callable[[int], None]
"""Called with the number of rows just read, in the thread that pulls them."""


@dataclass(frozen=True, slots=True)
class Scanner:
    """The scanner interface that DuckDB calls. Arrow's own scanner reads ahead: forty batches for a query that needs
    one row."""

    reader: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


class Pulled(ds.Dataset):  # type: ignore[misc]
    """A table behind a reading function."""

    def __init__(
        self, schema: pa.Schema, read: Read, loop: asyncio.AbstractEventLoop, counted: Counted
    ) -> None:
        self._schema = schema
        self._read = read
        self._loop = loop
        self._counted = counted
        self._open: list[AsyncGenerator[pa.RecordBatch, None]] = []
        self.failure: Exception | None = None  # of a read; DuckDB passes on only its text

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_how: Any,
    ) -> Scanner:
        """Rows for which the condition is true; DuckDB does not check it again."""
        names = list(self._schema.names if columns is None else columns)
        read = [name for name in self._schema.names if name in names or _says(filter, name, self._schema)]
        batches = self._read(Asked(tuple(read), filter))
        self._open.append(batches)
        schema = pa.schema([self._schema.field(name) for name in names])
        rows = (_chosen(batch, names, filter) for batch in self._pulled(batches))
        return Scanner(pa.RecordBatchReader.from_batches(schema, rows))

    async def close(self) -> None:
        """Closes the readers that a query has not read to the end."""
        for batches in self._open:
            await batches.aclose()

    def _pulled(self, batches: AsyncGenerator[pa.RecordBatch, None]) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch: Any = asyncio.run_coroutine_threadsafe(_next(batches), self._loop).result()
            except Exception as failure:
                self.failure = failure
                raise
            if batch is _END:
                return
            self._counted(batch.num_rows)
            yield batch


def _chosen(batch: pa.RecordBatch, names: list[str], condition: pc.Expression | None) -> pa.RecordBatch:
    return (batch if condition is None else batch.filter(condition)).select(names)


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> object:
    return await anext(batches, _END)


def _says(condition: pc.Expression | None, name: str, schema: pa.Schema) -> bool:
    """Whether a condition refers to a column. It cannot be evaluated on a table without that column."""
    if condition is None:
        return False
    without = schema.remove(schema.get_field_index(name)).empty_table()
    try:
        without.filter(condition)
    except pa.ArrowInvalid:
        return True
    return False

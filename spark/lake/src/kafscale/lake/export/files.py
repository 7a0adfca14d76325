"""One partition's Parquet files, written row group by row group.

A file is written under a name that readers ignore, made durable, and then renamed. The new name contains its offsets.
At most GROUP_ROWS rows or GROUP_BYTES are buffered for a row group.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from kafscale.lake.columns import Wanted
from kafscale.lake.export.plan import TEMPORARY, file_name

SCHEMA: Final = Wanted().schema
GROUP_ROWS: Final = 262_144
GROUP_BYTES: Final = 64 << 20
RISING: Final = ("offset", "timestamp")
"""Columns with min/max statistics, by which readers skip row groups, and with delta encoding. Keys and values have no
order, so their statistics would be useless, and they cost a sixth of the write time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A published file."""

    rows: int
    bytes: int


class PartitionFiles:
    """Writes the files of a folder one after the other; each begins where the previous one ended."""

    def __init__(self, folder: Path, first: int, rows_max: int) -> None:
        self._folder = folder
        self._first = first  # the first offset of the open file
        self._rows_max = rows_max
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self.written: list[Written] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, in offset order, with the columns of SCHEMA."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write_group()
        if self._rows + self._waiting_rows >= self._rows_max:
            self.finish(batch["offset"][-1].as_py() + 1)

    def finish(self, end: int) -> None:
        """Publishes the added rows as a file that covers the offsets up to `end`. Without rows there is no file."""
        if self._waiting:
            self._write_group()
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        target = self._folder / file_name(self._first, end)
        with self._temporary.open("rb") as file:
            os.fsync(file.fileno())
        self._temporary.rename(target)
        sync(self._folder)
        self.written.append(Written(rows=self._rows, bytes=target.stat().st_size))
        self._first, self._rows = end, 0

    def discard(self) -> None:
        """Deletes the unpublished file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.unlink()

    @property
    def _temporary(self) -> Path:
        return self._folder / f"{TEMPORARY}{self._first:020d}"

    def _write_group(self) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._temporary,
                SCHEMA,
                compression="zstd",
                use_dictionary=["key"],
                column_encoding=dict.fromkeys(RISING, "DELTA_BINARY_PACKED"),
                write_statistics=list(RISING),
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, SCHEMA), row_group_size=1 << 30)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def sync(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

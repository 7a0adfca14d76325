"""Exports topics to Parquet directly from the scan, without a query engine and without an object per row.

An export may be killed at any point and run again. It keeps the published files and continues after them, so the same
command also exports new records.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import Wanted
from kafscale.lake.export.files import PartitionFiles, sync
from kafscale.lake.export.plan import (
    STATE_NAME,
    TEMPORARY,
    Exported,
    ExportRefused,
    decode_exported,
    folder_of,
    joined,
    next_offset,
)
from kafscale.lake.scan import scan
from kafscale.lake.sql import stream

FILE_ROWS: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What one export wrote of a partition: offsets [first, end), except those that the condition excludes."""

    topic: str
    partition: int
    first: int
    end: int
    files: int
    rows: int
    bytes: int


Report = Callable[[int], None]
"""Called with the number of further offsets that were written or skipped."""


async def export(
    lake: Lake,
    logs: Sequence[Log],
    folder: Path,
    *,
    where: str | None = None,
    rows_max: int = FILE_ROWS,
    report: Report = lambda _: None,
) -> list[Done]:
    """Writes the records of these logs that the folder does not have yet, one file per `rows_max` records of a
    partition.

    Raises ExportRefused, QueryFailed for an invalid condition, StoreError, CorruptSegment, OSError.
    """
    with locked(folder):
        remember(folder, logs, where)
        return [
            await _export_log(lake, log, folder / folder_of(log), where, rows_max, report) for log in logs
        ]


async def _export_log(
    lake: Lake, log: Log, folder: Path, where: str | None, rows_max: int, report: Report
) -> Done:
    first, end = max(resumed(folder), log.start), log.stable_end
    files = PartitionFiles(folder, first, rows_max)
    seen = first
    report(min(first, end) - log.start)
    try:
        if first < end:
            async with aclosing(_rows(lake, log, first, where)) as batches:
                async for batch in batches:
                    await asyncio.to_thread(files.add, batch)
                    if batch.num_rows:
                        seen, before = batch["offset"][-1].as_py() + 1, seen
                        report(seen - before)
            await asyncio.to_thread(files.finish, end)
            report(end - seen)
    finally:
        files.discard()
    return Done(
        topic=log.topic.name,
        partition=log.partition,
        first=first,
        end=max(first, end),
        files=len(files.written),
        rows=sum(file.rows for file in files.written),
        bytes=sum(file.bytes for file in files.written),
    )


async def _rows(lake: Lake, log: Log, first: int, where: str | None) -> AsyncGenerator[pa.RecordBatch, None]:
    wanted = Wanted(first=first)
    if where is None:
        async for batch in scan(lake, log, wanted):
            yield batch
        return
    columns = ", ".join(f'"{name}"' for name in wanted.columns)
    text = f'select {columns} from records where "offset" >= {first} and ({where}\n)'  # noqa: S608 - it is a query
    async with aclosing(stream(lake, [log], text)) as found:
        async for batch in found:
            yield batch.cast(wanted.schema)


def resumed(folder: Path) -> int:
    """Where a partition's export resumes. Deletes the unpublished file of a killed export."""
    if not folder.is_dir():
        return 0
    for file in folder.glob(f"{TEMPORARY}*"):
        file.unlink()
    return next_offset(file.name for file in folder.iterdir())


def remember(folder: Path, logs: Sequence[Log], where: str | None) -> None:
    state = folder / STATE_NAME
    before = decode_exported(state.read_text()) if state.exists() else None
    if before is None and any(not file.name.startswith(TEMPORARY) for file in folder.iterdir()):
        raise ExportRefused(f"{folder} is not empty, and not the folder of an export")
    exported = any(not file.name.startswith(TEMPORARY) for file in folder.glob("*/*/*"))
    after = joined(before if exported else None, logs, where)  # a condition that failed binds nobody
    if after != before:
        _write_state(folder, state, after)


def _write_state(folder: Path, state: Path, exported: Exported) -> None:
    temporary = folder / f"{TEMPORARY}{STATE_NAME}"
    with temporary.open("w") as file:
        file.write(exported.encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(state)
    sync(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Allows one export at a time in a folder: two would write the same offsets twice."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise ExportRefused(f"another export is writing to {folder}") from busy
        yield
    finally:
        os.close(descriptor)

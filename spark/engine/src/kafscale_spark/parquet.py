"""Parquet files that tasks write, for the driver to publish: names say which offsets a file covers.

Tasks write below a folder that readers ignore, and a task that is retried writes new files. So readers never see what a
killed export leaves, and the next export removes it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafscale.lake.catalog import Log, TopicPartition
from kafscale.lake.export.files import SCHEMA, PartitionFiles, sync
from kafscale.lake.export.plan import TEMPORARY, folder_of
from kafscale.lake.export.run import FILE_ROWS, Done, resumed
from kafscale.runtime.settings import ServiceSettings

from kafscale_spark.schemas import selected
from kafscale_spark.spans import Span, place_of
from kafscale_spark.splits import Ask, Split, read_split


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Its path below the staging folder: the attempt, then its place in the export."""

    place: TopicPartition
    path: Path
    rows: int
    bytes: int


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A folder below the target. The caller holds the target's lock, so other files there are from dead exports."""
    for dead in target.glob(f"{TEMPORARY}spark-*"):
        shutil.rmtree(dead)
    folder = target / f"{TEMPORARY}spark-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def due(target: Path, logs: Sequence[Log]) -> list[Span]:
    """The span of each log from the end of earlier exports to the end of the log."""
    return [
        Span(log=log, first=max(resumed(target / folder_of(log)), log.start), end=log.stable_end)
        for log in logs
    ]


def write_split(settings: ServiceSettings, folder: Path, split: Split) -> list[File]:
    """A task's work. Raises DataLoss, StoreError, CorruptSegment, OSError."""
    home = Path(uuid.uuid4().hex) / folder_of(split.log)
    files = PartitionFiles(folder / home, split.first, FILE_ROWS)
    for batch in read_split(settings, split, Ask(schema=SCHEMA, shape=selected)):
        files.add(batch)
    files.finish(split.end)
    if not files.written:
        return []
    names = sorted(path.name for path in (folder / home).iterdir())
    return [
        File(place=place_of(split.log), path=home / name, rows=written.rows, bytes=written.bytes)
        for name, written in zip(names, files.written, strict=True)
    ]


def publish(folder: Path, target: Path, files: Iterable[File]) -> None:
    """Publishes the files, the least offsets first. If the export is killed here, the next one continues after them."""
    for file in sorted(files, key=lambda file: file.path.name):
        place = target / file.path.relative_to(file.path.parts[0])
        place.parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).rename(place)
        sync(place.parent)


def done(spans: Iterable[Span], files: Sequence[File]) -> list[Done]:
    """A row for each log, even if nothing was new."""
    found = []
    for span in spans:
        own = [file for file in files if file.place == place_of(span.log)]
        found.append(
            Done(
                topic=span.log.topic.name,
                partition=span.log.partition,
                first=span.first,
                end=max(span.first, span.end),
                files=len(own),
                rows=sum(file.rows for file in own),
                bytes=sum(file.bytes for file in own),
            )
        )
    return found

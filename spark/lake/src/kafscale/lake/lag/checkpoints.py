"""Spark's streaming queries as groups: their positions are in their checkpoints, not in committed offsets.

A checkpoint has a file for each batch: `offsets/N` is written before batch N and says where it ends, `commits/N` after
it. So a query has read what `offsets/N` says of the newest N that is in `commits`. Sources other than
Kafka's and KafScale's have offsets of another form, and are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from kafscale.lake.lag.positions import Commit
from kafscale.storage.groups import CommittedOffset

VERSION: Final = "v1"
NO_OFFSET: Final = "-"


class NoCheckpoint(Exception):
    """A folder that is no checkpoint, or of a form that we do not know."""


def read_checkpoint(folder: Path) -> list[Commit]:
    """What the query has read, under its id as the group's name; nothing before its first batch is done.

    The time of a commit is that of its file. Raises NoCheckpoint.
    """
    try:
        query = json.loads((folder / "metadata").read_text())["id"]
        newest = max(_batches(folder / "commits"), default=None)
        if newest is None:
            return []
        committed_ms = int((folder / "commits" / str(newest)).stat().st_mtime * 1000)
        lines = (folder / "offsets" / str(newest)).read_text().splitlines()
    except (OSError, ValueError, KeyError, TypeError) as trouble:
        raise NoCheckpoint(f"{folder} is no checkpoint of a Spark query: {trouble}") from trouble
    if lines[:1] != [VERSION]:
        raise NoCheckpoint(f"{folder}: offsets of version {lines[:1]}, not {VERSION!r}")
    return [
        Commit(
            group=str(query),
            topic=topic,
            partition=partition,
            offset=CommittedOffset(offset=offset, commit_ms=committed_ms),
        )
        for (topic, partition), offset in sorted(_offsets(lines[2:]).items())
    ]


def _batches(folder: Path) -> Iterator[int]:
    """Spark keeps checksums and unfinished files beside them."""
    return (int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def _offsets(sources: Iterable[str]) -> dict[tuple[str, int], int]:
    """A line for each source. Of two that read one partition the slower counts."""
    found: dict[tuple[str, int], int] = {}
    for line in sources:
        for place, offset in _of_source(line):
            found[place] = min(offset, found.get(place, offset))
    return found


def _of_source(line: str) -> Iterator[tuple[tuple[str, int], int]]:
    """Kafka's source writes {"topic": {"0": 12}}, ours {"topic:0": 12}."""
    if line == NO_OFFSET:
        return
    try:
        said: Any = json.loads(line)
    except ValueError:
        return
    for name, value in said.items() if isinstance(said, dict) else ():
        if isinstance(value, dict):
            for partition, offset in value.items():
                if partition.isdecimal() and isinstance(offset, int):
                    yield (name, int(partition)), offset
            continue
        topic, colon, partition = name.rpartition(":")
        if colon and partition.isdecimal() and isinstance(value, int):
            yield (topic, int(partition)), value

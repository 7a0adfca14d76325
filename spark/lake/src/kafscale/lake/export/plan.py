"""What an export's folder holds and where it goes on. Pure.

A file's name says which offsets it covers, so the names alone say what is done: a file appears as a whole, or not at
all. What was exported is never written again, and the folder remembers what it is an export of: of the same topics,
under the same condition, or of nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Log

STATE_NAME: Final = "_kafscale_export.json"
"""Readers of Hive layouts pass over names that begin with _ or a dot."""
TEMPORARY: Final = ".writing-"
_VERSION: Final = 1
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.parquet")


class ExportRefused(Exception):
    """The folder is not one that this export can go on in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a folder is an export of; `topics` are names and ids."""

    where: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> str:
        told = {"version": _VERSION, "where": self.where, "topics": dict(sorted(self.topics.items()))}
        return json.dumps(told, indent=1) + "\n"


def decode_exported(text: str) -> Exported:
    try:
        told = json.loads(text)
        if told["version"] != _VERSION:
            raise ExportRefused(f"the folder's {STATE_NAME} is of another version of kafscale")
        return Exported(where=told["where"], topics=dict(told["topics"]))
    except (ValueError, KeyError, TypeError) as broken:
        raise ExportRefused(f"the folder's {STATE_NAME} cannot be read: {broken}") from broken


def joined(before: Exported | None, logs: Iterable[Log], where: str | None) -> Exported:
    """What the folder holds after this export too. Raises ExportRefused when the two do not go together."""
    topics = {log.topic.name: log.topic.topic_id.hex() for log in logs}
    if before is None:
        return Exported(where=where, topics=topics)
    if before.where != where:
        told = "without a condition" if before.where is None else f"where {before.where}"
        raise ExportRefused(f"the folder holds an export {told}; take another folder")
    for name, topic_id in topics.items():
        if before.topics.get(name, topic_id) != topic_id:
            raise ExportRefused(
                f"topic {name} was deleted and made again since its export; take another folder"
            )
    return Exported(where=where, topics={**before.topics, **topics})


def folder_of(log: Log) -> str:
    """Hive's layout: readers make columns of it."""
    return f"topic={log.topic.name}/partition={log.partition}"


def file_name(first: int, end: int) -> str:
    """Of offsets [first, end)."""
    return f"{first:020d}-{end:020d}.parquet"


def next_offset(names: Iterable[str]) -> int:
    """The first offset behind everything that these files of a partition cover. Raises ExportRefused if two overlap."""
    covered = 0
    for name in sorted(names):
        match = _NAME.fullmatch(name)
        if match is None:
            raise ExportRefused(f"{name} is not of an export")
        first, end = int(match[1]), int(match[2])
        if first < covered:
            raise ExportRefused(f"{name} covers offsets that another file covers")
        covered = end
    return covered

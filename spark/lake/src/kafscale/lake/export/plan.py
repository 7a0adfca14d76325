"""The state of an export's folder, and where the export resumes. Pure.

A file's name contains the offsets that it covers, and a file appears completely or not at all. So the names show what
is done, and exported records are never written again. The folder also records the export's topics, condition and
isolation level: a folder holds one export only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Log

STATE_NAME: Final = "_kafscale_export.json"
"""Readers of Hive layouts ignore names that begin with _ or a dot."""
TEMPORARY: Final = ".writing-"
_VERSION: Final = 1
_UNCOMMITTED: Final = 2
"""The version of a folder that also has records of transactions that are open or were aborted."""
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.parquet")


class ExportRefused(Exception):
    """This export cannot continue in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The export that a folder belongs to; `topics` maps names to ids."""

    where: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    committed_only: bool = True

    def encode(self) -> str:
        version = _VERSION if self.committed_only else _UNCOMMITTED
        told = {"version": version, "where": self.where, "topics": dict(sorted(self.topics.items()))}
        return json.dumps(told, indent=1) + "\n"


def decode_exported(text: str) -> Exported:
    try:
        told = json.loads(text)
        if told["version"] not in (_VERSION, _UNCOMMITTED):
            raise ExportRefused(f"the folder's {STATE_NAME} is of another version of kafscale")
        return Exported(
            where=told["where"], topics=dict(told["topics"]), committed_only=told["version"] == _VERSION
        )
    except (ValueError, KeyError, TypeError) as broken:
        raise ExportRefused(f"the folder's {STATE_NAME} cannot be read: {broken}") from broken


def joined(before: Exported | None, logs: Sequence[Log], where: str | None) -> Exported:
    """The folder's state with this export added. Raises ExportRefused if they do not match."""
    topics = {log.topic.name: log.topic.topic_id.hex() for log in logs}
    committed_only = all(log.committed_only for log in logs)
    if before is None:
        return Exported(where=where, topics=topics, committed_only=committed_only)
    if before.committed_only != committed_only:
        told = "read_committed" if before.committed_only else "read_uncommitted"
        raise ExportRefused(f"the folder holds an export of isolation level {told}; take another folder")
    if before.where != where:
        told = "without a condition" if before.where is None else f"where {before.where}"
        raise ExportRefused(f"the folder holds an export {told}; take another folder")
    for name, topic_id in topics.items():
        if before.topics.get(name, topic_id) != topic_id:
            raise ExportRefused(
                f"topic {name} was deleted and made again since its export; take another folder"
            )
    return Exported(where=where, topics={**before.topics, **topics}, committed_only=committed_only)


def folder_of(log: Log) -> str:
    """Hive's layout: readers turn the folder names into columns."""
    return f"topic={log.topic.name}/partition={log.partition}"


def file_name(first: int, end: int) -> str:
    """The name of the file with offsets [first, end)."""
    return f"{first:020d}-{end:020d}.parquet"


def next_offset(names: Iterable[str]) -> int:
    """The first offset after those of the partition's files. Raises ExportRefused if two files overlap."""
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

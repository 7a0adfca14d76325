"""A retention plan as rows: what would be deleted under the topics' own or other limits, and which groups lose records.

Plain values, so that they can travel: plans of different topics can be merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log, by_place, read_lake
from kafscale.lake.lag.commits import Commit, read_commits
from kafscale.lake.retention.plan import OWN, Limits, PlannedDeletion, plan, start_after

PLAN: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segment": pa.int64(),
        "rule": pa.string(),
        "age_ms": pa.int64(),
        "bytes": pa.int64(),
    }
)
LOSSES: Final = pa.schema(
    {
        "group": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "committed": pa.int64(),
        "start": pa.int64(),
        "records": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """`rows` have the columns of PLAN, `losses` those of LOSSES. `bytes_own`: under the topics' own settings.

    `partitions` are rows of each log that loses anything: segments and bytes, where it starts, and where it would.
    """

    logs: int = 0
    bytes: int = 0
    bytes_own: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    partitions: list[dict[str, Any]] = field(default_factory=list)


async def plan_lake(lake: Lake, names: Iterable[str] | None, now_ms: int, limits: Limits = OWN) -> Planned:
    """Of these topics, or of all. Raises EtcdError and StoreError."""
    logs = await read_lake(lake, names)
    doomed = plan(logs, now_ms, limits)
    lost: list[dict[str, Any]] = []
    if limits != OWN:
        lost = await _losses(lake, logs, doomed)
    return Planned(
        logs=len(logs),
        bytes=bytes_of(doomed),
        bytes_own=bytes_of(plan(logs, now_ms)),
        rows=[_row(each) for each in doomed],
        losses=lost,
        partitions=_by_partition(doomed),
    )


def merge_plans(plans: Sequence[Planned]) -> Planned:
    """The plan of all of them, which are of different topics."""
    return Planned(
        logs=sum(each.logs for each in plans),
        bytes=sum(each.bytes for each in plans),
        bytes_own=sum(each.bytes_own for each in plans),
        rows=sorted((row for each in plans for row in each.rows), key=_of_place),
        losses=sorted(
            (row for each in plans for row in each.losses), key=lambda row: (row["group"], *_of_place(row))
        ),
        partitions=sorted((row for each in plans for row in each.partitions), key=_of_place),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that a group has not read and that would be gone. Offsets, as lag counts them."""

    group: str
    topic: str
    partition: int
    committed: int
    start: int  # the log start that would be
    records: int


def bytes_of(doomed: Iterable[PlannedDeletion]) -> int:
    """Of the segments and their indexes."""
    return sum(each.segment.size + each.segment.index_size for each in doomed)


def losses(logs: Sequence[Log], doomed: Iterable[PlannedDeletion], commits: Iterable[Commit]) -> list[Loss]:
    """In the order of the commits. What a group has lost already is not counted again."""
    starts = _starts(doomed)
    places = by_place(logs)
    found = []
    for commit in commits:
        place = (commit.topic, commit.partition)
        if place not in starts:
            continue
        lost = starts[place] - max(commit.offset.offset, places[place].start)
        if lost > 0:
            found.append(
                Loss(
                    group=commit.group,
                    topic=commit.topic,
                    partition=commit.partition,
                    committed=commit.offset.offset,
                    start=starts[place],
                    records=lost,
                )
            )
    return found


def _starts(doomed: Iterable[PlannedDeletion]) -> Mapping[tuple[str, int], int]:
    """Where the logs would start that lose anything."""
    by_log: dict[tuple[str, int], list[PlannedDeletion]] = {}
    for each in doomed:
        by_log.setdefault((each.log.topic.name, each.log.partition), []).append(each)
    return {place: start_after(some[0].log, some) for place, some in by_log.items()}


async def _losses(lake: Lake, logs: Sequence[Log], doomed: Iterable[PlannedDeletion]) -> list[dict[str, Any]]:
    commits = await read_commits(lake, {log.topic.name: log.topic for log in logs}.values())
    return [asdict(loss) for loss in losses(logs, doomed, commits)]


def _by_partition(doomed: Iterable[PlannedDeletion]) -> list[dict[str, Any]]:
    """A plan is in the order of its logs."""
    rows = []
    for (topic, partition), group in groupby(
        doomed, key=lambda each: (each.log.topic.name, each.log.partition)
    ):
        some = list(group)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "segments": len(some),
                "bytes": bytes_of(some),
                "start": some[0].log.start,
                "start_after": start_after(some[0].log, some),
            }
        )
    return rows


def _of_place(row: dict[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _row(doomed: PlannedDeletion) -> dict[str, Any]:
    return {
        "topic": doomed.log.topic.name,
        "partition": doomed.log.partition,
        "segment": doomed.segment.base,
        "rule": doomed.rule.value,
        "age_ms": doomed.age_ms,
        "bytes": doomed.segment.size + doomed.segment.index_size,
    }

"""A retention plan as rows: what would be deleted under the topics' own or other limits, and which groups lose records.

Plain values, so that they can travel: plans of different topics can be merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.lag.commits import Position
from kafscale.lake.lag.positions import read_positions
from kafscale.lake.retention.plan import OWN, Limits, PlannedDeletion, plan, start_after
from kafscale.lake.retention.summary import merged

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
    partitions = by_partition(doomed)
    lost: list[dict[str, Any]] = []
    if limits != OWN:
        positions, _ = await read_positions(lake, list({log.topic.name: log.topic for log in logs}.values()))
        lost = losses(partitions, positions)
    return Planned(
        logs=len(logs),
        bytes=bytes_of(doomed),
        bytes_own=bytes_of(plan(logs, now_ms)),
        rows=[_row(each) for each in doomed],
        losses=lost,
        partitions=partitions,
    )


def merge_plans(plans: Sequence[Planned]) -> Planned:
    """The plan of all of them, which are of different topics."""
    whole = merged(Planned(), plans)
    whole.rows.sort(key=_of_place)
    whole.losses.sort(key=lambda row: (row["group"], *_of_place(row)))
    whole.partitions.sort(key=_of_place)
    return whole


def bytes_of(doomed: Iterable[PlannedDeletion]) -> int:
    """Of the segments and their indexes."""
    return sum(each.segment.size + each.segment.index_size for each in doomed)


def losses(partitions: Iterable[dict[str, Any]], positions: Iterable[Position]) -> list[dict[str, Any]]:
    """Records that a group has not read and that would be gone (LOSSES), in the order of the positions. Offsets, as lag
    counts them; `start` is the log start that would be. What a group has lost already is not counted again. Where a
    group has committed nothing (`committed` is None), it has not read anything."""
    places = {_of_place(row): row for row in partitions}
    found = []
    for each in positions:
        row = places.get((each.topic, each.partition))
        committed = each.offset.offset if each.offset is not None else None
        lost = row["start_after"] - max(committed or 0, row["start"]) if row else 0
        if row and lost > 0:
            found.append(
                {
                    "group": each.group,
                    "topic": each.topic,
                    "partition": each.partition,
                    "committed": committed,
                    "start": row["start_after"],
                    "records": lost,
                }
            )
    return found


def by_partition(doomed: Iterable[PlannedDeletion]) -> list[dict[str, Any]]:
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

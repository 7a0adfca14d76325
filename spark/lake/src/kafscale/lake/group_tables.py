"""The tables of consumer groups: state, committed offsets, lag. Pure but for the file of a lag report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq
from kafscale.lake.lag.positions import Commit, state_of
from kafscale.lake.lag.report import Report
from kafscale.lake.tables import TIME, Columns, calendar_ms
from kafscale.storage.groups import ClassicGroup, ConsumerGroup, GroupState

GROUPS: Final = pa.schema(
    {
        "group_id": pa.string(),
        "type": pa.string(),
        "state": pa.string(),
        "members": pa.int32(),
        "generation": pa.int32(),
        "protocol": pa.string(),
        "empty_since": TIME,
    }
)
COMMITS: Final = Columns[Commit](
    {
        "group_id": (pa.string(), lambda commit: commit.group),
        "topic": (pa.string(), lambda commit: commit.topic),
        "partition": (pa.int32(), lambda commit: commit.partition),
        "committed": (pa.int64(), lambda commit: commit.offset.offset),
        "committed_at": (TIME, lambda commit: calendar_ms(commit.offset.commit_ms)),
        "leader_epoch": (
            pa.int32(),
            lambda commit: commit.offset.leader_epoch if commit.offset.leader_epoch >= 0 else None,
        ),
        "metadata": (pa.string(), lambda commit: commit.offset.metadata),
    }
)
LAG_ROWS: Final = pa.schema(
    {
        "cluster": pa.string(),
        "ts": TIME,
        "group_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "status": pa.string(),
        "records": pa.int64(),
        "stable_records": pa.int64(),
        "bytes": pa.int64(),
        "time_ms": pa.int64(),
        "lost": pa.int64(),
        "ahead": pa.int64(),
        "at_risk": pa.bool_(),
        "expires_in_ms": pa.int64(),
        "expires_by_size_ms": pa.int64(),
        "eta_ms": pa.int64(),
        "consume_per_s": pa.float64(),
        "produce_per_s": pa.float64(),
        "net_per_s": pa.float64(),
        "committed": pa.int64(),
        "log_start": pa.int64(),
        "log_end": pa.int64(),
        "stable_end": pa.int64(),
        "committed_ms": pa.int64(),
        "member": pa.string(),
        "client": pa.string(),
        "host": pa.string(),
        "complete": pa.float64(),
    }
)
"""The fields of PartitionRow, behind the cluster and the time of the report."""
LAG: Final = pa.schema([field for field in LAG_ROWS if field.name not in ("cluster", "ts")])
"""The table `lag`: the same rows, of one report."""
OF_HISTORY: Final = frozenset(
    {
        "status",
        "at_risk",
        "expires_by_size_ms",
        "eta_ms",
        "consume_per_s",
        "produce_per_s",
        "net_per_s",
        "complete",
    }
)
"""Columns of LAG that come from the history of samples."""


def groups_table(groups: Mapping[str, GroupState], commits: Iterable[Commit]) -> pa.Table:
    """Includes groups that have only offsets. Kafka lists those as empty classic groups."""
    names = sorted(groups.keys() | {commit.group for commit in commits})
    return pa.Table.from_pylist([_group(name, groups.get(name)) for name in names], schema=GROUPS)


def _group(name: str, group: GroupState | None) -> dict[str, Any]:
    if group is None:
        return {"group_id": name, "type": "classic", "state": "empty", "members": 0}
    state = group.state
    match state:
        case ClassicGroup():
            kind, generation, protocol = "classic", state.generation, state.protocol
        case ConsumerGroup():
            kind, generation, protocol = "consumer", state.group_epoch, None
        case never:
            assert_never(never)
    return {
        "group_id": name,
        "type": kind,
        "state": state_of(group),
        "members": len(state.members),
        "generation": generation,
        "protocol": protocol,
        "empty_since": group.empty_since_ms if group.empty_since_ms >= 0 else None,
    }


def partitions_table(report: Report) -> pa.Table:
    rows = [
        {"cluster": report.cluster, "ts": report.at_ms, "group_id": row.group, **asdict(row)}
        for row in report.partitions
    ]
    return pa.Table.from_pylist(rows, schema=LAG_ROWS)


def write_partitions(report: Report, path: Path) -> None:
    """Raises OSError."""
    with path.open("wb") as file:  # an error of Python's own, which names the file in few words
        pq.write_table(partitions_table(report), file, compression="zstd")


def lag_table(report: Report) -> pa.Table:
    return partitions_table(report).select(LAG.names)

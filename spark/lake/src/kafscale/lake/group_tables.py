"""The tables of consumer groups: what they are, what they have committed, how far behind they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

import pyarrow as pa
from kafscale.lake.lag.commits import Commit, state_of
from kafscale.lake.lag.measure import Lag
from kafscale.lake.scan import PLACE
from kafscale.lake.tables import TIME
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
COMMITS: Final = pa.schema(
    {
        "group_id": pa.string(),
        **PLACE,
        "committed": pa.int64(),
        "committed_at": TIME,
        "leader_epoch": pa.int32(),
        "metadata": pa.string(),
    }
)
LAG: Final = pa.schema(
    {
        "group_id": pa.string(),
        **PLACE,
        "committed": pa.int64(),
        "log_start": pa.int64(),
        "log_end": pa.int64(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "time_ms": pa.int64(),
        "lost": pa.int64(),
        "expires_in_ms": pa.int64(),
    }
)


def groups_table(groups: Mapping[str, GroupState], commits: Iterable[Commit]) -> pa.Table:
    """Also those of which there are offsets alone, as Kafka lists them: empty, of the classic type."""
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


def commits_table(commits: Iterable[Commit]) -> pa.Table:
    rows = [
        {
            "group_id": commit.group,
            "topic": commit.topic,
            "partition": commit.partition,
            "committed": commit.offset.offset,
            "committed_at": commit.offset.commit_ms,
            "leader_epoch": commit.offset.leader_epoch if commit.offset.leader_epoch >= 0 else None,
            "metadata": commit.offset.metadata,
        }
        for commit in commits
    ]
    return pa.Table.from_pylist(rows, schema=COMMITS)


def lag_table(lags: Iterable[Lag]) -> pa.Table:
    rows = [
        {"group_id": lag.group} | {name: getattr(lag, name) for name in LAG.names if name != "group_id"}
        for lag in lags
    ]
    return pa.Table.from_pylist(rows, schema=LAG)

"""The lag report as the rows of the console. Pure; runs in the child process, which has Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from kafscale.console.direct.questions import Row
from kafscale.lake.lag.page import drawn
from kafscale.lake.lag.rates import soonest
from kafscale.lake.lag.report import GroupRow, PartitionRow, Report

_OF_GROUP: Final = (
    "group", "state", "members", "managed", "records", "stable_records", "bytes", "time_ms", "lost", "at_risk",
    "expires_in_ms", "skew", "trend_1h_per_s", "uncommitted_records", "uncommitted_expires_in_ms",
)  # fmt: skip


def group_rows(report: Report) -> list[Row]:
    """One for each group that the report has. `eta_ms`: None also if one partition does not catch up. `line`: the lag
    over the history, as letters (`page.drawn`)."""
    places: dict[str, list[PartitionRow]] = {}
    for row in report.partitions:
        places.setdefault(row.group, []).append(row)
    return [_group_row(report, group, places[group.group]) for group in report.groups]


def _group_row(report: Report, group: GroupRow, parts: Sequence[PartitionRow]) -> Row:
    etas = [part.eta_ms for part in parts if part.committed is not None and part.stable_records]
    return {name: getattr(group, name) for name in _OF_GROUP} | {
        "status": group.status.value,
        "statuses": sorted({part.status.value for part in parts if part.committed is not None}),
        "life": group.life.value,
        "partitions": len(parts),
        "topics": sorted({part.topic for part in parts}),
        "unowned": len(group.unowned),
        "uncommitted": len(group.uncommitted),
        "eta_ms": None if None in etas else max((eta for eta in etas if eta is not None), default=None),
        "line": drawn(report.series.total(part.place for part in parts)),
    }


def partition_rows(report: Report, group: str) -> list[Row]:
    """Of one group, with `line` as in `group_rows`."""
    rows = [row for row in report.partitions if row.group == group]
    lines = report.series.lines
    return [
        asdict(row)
        | {
            "status": row.status.value,
            "expires_in_ms": soonest(row.expires_in_ms, row.expires_by_size_ms),
            "line": drawn(lines[row.place]) if row.place in lines else "",
        }
        for row in rows
    ]


def history(report: Report, group: str) -> Row:
    """The unread records of a group over time: `start_ms`, `step_ms`, `values` (None: not known)."""
    series = report.series
    line = series.total(row.place for row in report.partitions if row.group == group)
    values = [None if value < 0 else value for value in line.tolist()]
    return {"start_ms": series.start_ms, "step_ms": series.step_ms, "values": values}

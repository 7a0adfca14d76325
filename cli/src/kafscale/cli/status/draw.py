"""The picture of a cluster on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafscale.cli.lake.lag_table import duration, rate, size
from kafscale.operations.sentences import counted
from kafscale.operations.status.picture import READY
from kafscale.runtime.redaction import harmless

if TYPE_CHECKING:
    from kafscale.operations.status.picture import InstanceRow, Picture
    from rich.console import Group

COLUMNS: Final = ("service", "node", "address", "metrics", "health", "up", "doing")


def draw(picture: Picture) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in COLUMNS:
        table.add_column(
            name,
            justify="right" if name in ("node", "up") else "left",
            overflow="fold",
            no_wrap=name in ("address", "metrics"),
        )
    for row in picture.instances:
        good = row.health == READY
        table.add_row(
            row.service,
            str(row.node),
            harmless(row.address),
            harmless(row.metrics),
            Text(READY if good else harmless(row.health), style="green" if good else "red"),
            duration(row.age_s * 1000),
            doing(row),
        )
    warnings = [Text(f"WARNING {harmless(each)}", style="yellow") for each in picture.warnings]
    end = Text(f"rates over the last {picture.rates_over_s:.1f} s", style="dim")
    # A screen that is too low for all of it shows the beginning.
    return Group(*map(Text, heading(picture)), *warnings, Text(), table, Text(), end)


def heading(picture: Picture) -> tuple[str, ...]:
    lines = (
        f"KafScale '{picture.namespace}', cluster {picture.cluster_id or 'without an id yet'}",
        f"etcd {', '.join(picture.etcd)}",
        f"{counted(picture.topics, 'topic')}, {counted(picture.partitions, 'partition')} "
        f"({picture.partitions_owned} with an owner), {counted(picture.groups, 'group')}",
    )
    return (*lines, unsettled(picture)) if picture.slices else lines


def unsettled(picture: Picture) -> str:
    oldest = duration((picture.oldest_slice_s or 0) * 1000)
    return (
        f"{counted(picture.slices, 'slice')} of bundles not settled yet, "
        f"{size(picture.slice_bytes)}B, the oldest {oldest} old"
    )


def doing(row: InstanceRow) -> str:
    """What the instance owns, and what it does per second. Unknown values are left out."""
    parts = []
    if row.works is not None:
        parts.append("active" if row.works else "standby")
    if row.owns is not None:
        parts.append(counted(row.owns, "slot" if row.service == "coordinator" else "partition"))
    if row.groups is not None:
        parts.append(counted(row.groups, "group"))
    if row.connections is not None:
        parts.append(counted(row.connections, "connection"))
    if row.bytes_per_s is not None:
        parts.append(f"{rate(row.records_per_s)} records/s")
        parts.append(f"{size(round(row.bytes_per_s))}B/s")
    elif row.requests_per_s is not None:
        parts.append(f"{rate(row.requests_per_s)} requests/s")
    return ", ".join(parts)

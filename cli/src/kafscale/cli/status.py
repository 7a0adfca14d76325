"""`kafscale status`: the picture of a cluster on a terminal, as JSON or as CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.lake.lag_table import duration, rate, size
from kafscale.cli.targets import DataDirOption, EtcdOption, NamespaceOption, finished, settings_of
from kafscale.cli.terminal import (
    FAILED_EXIT_CODE,
    Output,
    OutputOption,
    fail_usage,
    screen,
    show_rows,
)
from kafscale.operations.sentences import Trouble, counted
from kafscale.runtime.redaction import harmless

if TYPE_CHECKING:
    from kafscale.operations.status.picture import InstanceRow, Picture
    from rich.console import Group

COLUMNS: Final = ("service", "node", "address", "metrics", "health", "up", "doing")


def status(
    data_dir: DataDirOption = None,
    etcd: EtcdOption = None,
    namespace: NamespaceOption = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=60, help="Seconds between the two readings for rates.")
    ] = 1.0,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat the output until Ctrl-C.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the cluster: its instances, their partitions, health and rates; exits 1 if clients are not served.

    Example: kafscale status --watch

    Default: the cluster of `kafscale up` in ./data, else the cluster of KAFSCALE_ETCD_ENDPOINTS.
    """
    if watch and output is not Output.TABLE:
        raise fail_usage("--watch shows tables only; for --output json, run the command repeatedly")
    try:
        shown = finished(_look(data_dir, etcd, namespace, interval, watch=watch, output=output))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None  # the way to end --watch
    if not shown.serves:
        raise typer.Exit(FAILED_EXIT_CODE)


async def _look(
    data_dir: Path | None,
    endpoints: str | None,
    namespace: str | None,
    interval_s: float,
    *,
    watch: bool,
    output: Output,
) -> Picture:
    """Shows pictures and returns the last one."""
    from kafscale.operations.clusters import NoCluster, chosen_dir, opened_etcd
    from kafscale.operations.datadir import full_disk
    from kafscale.operations.status.gather import look
    from kafscale.storage.keys import Keyspace

    settings = settings_of(data_dir, endpoints, namespace)
    here = chosen_dir(data_dir) if endpoints is None else None
    keys = Keyspace(settings.namespace)
    try:
        async with opened_etcd(settings) as client:
            with _screen(watch, output) as show:
                while True:
                    picture = await look(client, keys, settings.etcd_endpoints, interval_s, full_disk(here))
                    show(picture)
                    if not watch:
                        return picture
    except NoCluster as away:
        if (full := full_disk(here)) is None:
            raise
        raise Trouble(f"{full}, so etcd does not run; make room, and everything goes on by itself") from away


@contextmanager
def _screen(watch: bool, output: Output) -> Iterator[Callable[[Picture], None]]:
    """Prints a picture once, or replaces the previous one."""
    if not watch:
        yield lambda picture: _show(picture, output)
        return
    from rich.live import Live

    with Live(console=screen(), auto_refresh=False, screen=False) as live:
        yield lambda picture: live.update(draw(picture), refresh=True)


def _show(picture: Picture, output: Output) -> None:
    match output:
        case Output.JSON:
            typer.echo(json.dumps(asdict(picture), indent=1))
        case Output.CSV:
            rows = [asdict(row) for row in picture.instances]
            show_rows(list(rows[0]) if rows else [], rows, output)
        case Output.TABLE:
            screen().print(draw(picture))


def draw(picture: Picture) -> Group:
    from kafscale.operations.status.picture import READY
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
    more = [unsettled(picture)] if picture.slices else []
    if picture.transactions or picture.closing:
        more.append(unfinished(picture))
    return (*lines, *more)


def unfinished(picture: Picture) -> str:
    """Transactions that are not over."""
    parts = []
    if picture.transactions:
        oldest = duration((picture.oldest_transaction_s or 0) * 1000)
        parts.append(f"{counted(picture.transactions, 'transaction')} under way, the oldest {oldest} old")
    if picture.closing:
        oldest = duration((picture.oldest_closing_s or 0) * 1000)
        parts.append(f"{picture.closing} decided and not ended everywhere for {oldest}")
    return "; ".join(parts)


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

"""`kafscale cost`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.targets import DataDirOption, EtcdOption, NamespaceOption, finished, settings_of
from kafscale.cli.terminal import Output, OutputOption, notice, screen, show_rows
from kafscale.operations.cost.load import MB, Load, Prices, Requests, Tuning
from kafscale.operations.sentences import counted

if TYPE_CHECKING:
    from kafscale.operations.cost.measure import Measured
    from rich.table import Table

TUNING = Tuning()
PRICES = Prices()

NowOption = Annotated[bool, typer.Option("--now", help="Count the requests of a running cluster instead.")]
SecondsOption = Annotated[float, typer.Option(min=1, max=3_600, help="With --now: how long to count.")]
RateOption = Annotated[float, typer.Option(min=0.001, help="MB/s of records, of all topics together.")]
PartitionsOption = Annotated[int, typer.Option(min=1, help="Partitions that are written.")]
InstancesOption = Annotated[int, typer.Option(min=1, help="Produce instances.")]
RecordOption = Annotated[int, typer.Option(min=1, help="Size of a record.")]
ReadsOption = Annotated[
    float, typer.Option(min=0, help="Times that each record is read from the store; 0 without consumers.")
]
BundlesOption = Annotated[int, typer.Option(min=1, help="Value of KAFSCALE_BUNDLES_PER_S.")]
HeadsOption = Annotated[int, typer.Option(min=1, help="Value of KAFSCALE_HEAD_COMMITS_PER_S.")]
SegmentBytesOption = Annotated[int, typer.Option(min=4_096, help="Value of KAFSCALE_SEGMENT_BYTES.")]
DirectOption = Annotated[int, typer.Option(min=1, help="Value of KAFSCALE_BUNDLE_DIRECT_BYTES.")]
KeepOption = Annotated[int, typer.Option(min=0, help="Value of KAFSCALE_SETTLE_KEEP_BYTES.")]
SettleOption = Annotated[int, typer.Option(min=1_000, help="Value of KAFSCALE_SETTLE_MS.")]
FlushOption = Annotated[int, typer.Option(min=1, help="Milliseconds from the seal of a flush to its commit.")]
GraceOption = Annotated[int, typer.Option(min=0, help="Value of KAFSCALE_BUNDLE_GRACE_MS.")]
PutPriceOption = Annotated[float, typer.Option(min=0, help="Dollars for a million PUTs.")]
GetPriceOption = Annotated[float, typer.Option(min=0, help="Dollars for a million GETs.")]
StorePriceOption = Annotated[float, typer.Option(min=0, help="Dollars for a TB and month.")]


def cost(
    context: typer.Context,
    rate_mb: RateOption = 1.0,
    partitions: PartitionsOption = 10,
    instances: InstancesOption = 1,
    record_bytes: RecordOption = 1_000,
    reads: ReadsOption = 1.0,
    bundles_per_s: BundlesOption = TUNING.bundles_per_s,
    head_commits_per_s: HeadsOption = TUNING.head_commits_per_s,
    segment_bytes: SegmentBytesOption = TUNING.segment_bytes,
    bundle_direct_bytes: DirectOption = TUNING.bundle_direct_bytes,
    settle_keep_bytes: KeepOption = TUNING.settle_keep_bytes,
    settle_ms: SettleOption = TUNING.settle_ms,
    bundle_grace_ms: GraceOption = TUNING.bundle_grace_ms,
    flush_ms: FlushOption = TUNING.flush_ms,
    put_usd_per_million: PutPriceOption = PRICES.put_usd_per_million,
    get_usd_per_million: GetPriceOption = PRICES.get_usd_per_million,
    tb_month_usd: StorePriceOption = PRICES.tb_month_usd,
    now: NowOption = False,
    seconds: SecondsOption = 10.0,
    data_dir: DataDirOption = None,
    etcd: EtcdOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the requests to S3 and their price: for a load, or what a running cluster does now.

    Example: kafscale cost --rate-mb 10 --partitions 1000 --instances 3

    The figures for a load are computed. `kafscale cost --now` counts; it finds the cluster as `kafscale status` does.
    Prices are in dollars, by default those of S3 Standard in us-east-1.
    """
    prices = Prices(**_given(Prices, context))
    requests = _counted(finished(_measure(data_dir, etcd, namespace, seconds))) if now else _computed(context)
    _show(requests, prices, output)


def _given(values: type[Load | Tuning | Prices], context: typer.Context) -> dict[str, Any]:
    """The options that are fields of `values`: they have the same names."""
    names = {field.name for field in fields(values)}
    return {name: value for name, value in context.params.items() if name in names}


def _computed(context: typer.Context) -> Requests:
    from kafscale.operations.cost.model import requests_of

    load = Load(bytes_per_s=context.params["rate_mb"] * MB, **_given(Load, context))
    return requests_of(load, Tuning(**_given(Tuning, context)))


async def _measure(
    data_dir: Path | None, endpoints: str | None, namespace: str | None, seconds: float
) -> Measured:
    from kafscale.operations.clusters import opened_etcd
    from kafscale.operations.cost.measure import measure
    from kafscale.storage.keys import Keyspace

    settings = settings_of(data_dir, endpoints, namespace)
    async with opened_etcd(settings) as client:
        return await measure(client, Keyspace(settings.namespace), seconds)


def _counted(measured: Measured) -> Requests:
    notice(
        f"counted {measured.over_s:.1f} s over {counted(measured.partitions, 'partition')}; "
        "a month is 30 days at this rate; DELETEs are derived: every object that is written is deleted later"
    )
    if measured.silent:
        notice(
            f"{counted(measured.silent, 'fetch or produce instance')} did not answer, so the GETs are not known"
        )
    return measured.requests


def _show(requests: Requests, prices: Prices, output: Output) -> None:
    from kafscale.operations.cost.rows import COLUMNS, rows_of

    rows = rows_of(requests, prices)
    if output is Output.TABLE:
        screen().print(table(rows))
    else:
        show_rows(COLUMNS, rows, output)


def table(rows: list[dict[str, Any]]) -> Table:
    from kafscale.operations.cost.rows import COLUMNS
    from rich.table import Table

    shown = Table(box=None, header_style="bold")
    for name in COLUMNS:
        shown.add_column(name, justify="left" if name == "per" else "right", overflow="fold")
    for row in rows:
        shown.add_row(*(_cell(name, row[name]) for name in COLUMNS))
    return shown


def _cell(name: str, value: Any) -> str:
    from kafscale.operations.cost.rows import DOLLARS

    match value:
        case None:
            return ""
        case float():
            return f"{value:,.2f}" if name in DOLLARS or name == "redundant_gb" else f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)

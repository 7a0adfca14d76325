"""The commands of `kafscale spark`. Each is in a separate module."""

from __future__ import annotations

import typer
from kafscale.cli.spark.compact import compact
from kafscale.cli.spark.export import export
from kafscale.cli.spark.lag import lag
from kafscale.cli.spark.orphans import orphans
from kafscale.cli.spark.retention import retention
from kafscale.cli.spark.sql import sql

app = typer.Typer(
    name="spark",
    help="Query and maintain topics directly in the object store, without a broker.",
    no_args_is_help=True,
)
app.command()(compact)
app.command()(export)
app.command()(lag)
app.command()(orphans)
app.command()(retention)
app.command()(sql)

"""The `kafscale` command."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from kafscale.cli import records
from kafscale.cli.datadir import DataDir, DataDirBusy
from kafscale.cli.up import ROLES, CannotStart, Up, UpPlan
from rich.console import Console

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

app = typer.Typer(
    name="kafscale",
    help="A Kafka that keeps its records in an object store and nothing on its own machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="KAFSCALE_DATA_DIR", help="Where `kafscale up` keeps everything."),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KAFSCALE_BOOTSTRAP_SERVERS", help="host:port of a front door."
    ),
]


def _fail(message: str) -> typer.Exit:
    Console(stderr=True, highlight=False).print(f"[red]kafscale:[/red] {message}", soft_wrap=True)
    return typer.Exit(1)


def _bootstrap(given: str | None, data_dir: Path | None) -> str:
    """The address given, or that of the cluster that runs on the data directory, or Kafka's usual one."""
    if given is not None:
        return given
    running = DataDir(data_dir or Path("data")).running()
    return running.bootstrap_servers if running is not None else DEFAULT_BOOTSTRAP


def _scale(options: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for option in options:
        role, _, count = option.partition("=")
        if role not in ROLES or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f"'{option}': ROLE=N with one of {', '.join(ROLES)} and N from 1")
        wanted[role] = int(count)
    return wanted


@app.command()
def up(
    data_dir: Annotated[Path, typer.Option(envvar="KAFSCALE_DATA_DIR", help="Holds all state.")] = Path(
        "data"
    ),
    port: Annotated[int, typer.Option(help="Port for Kafka clients.")] = 9092,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[str | None, typer.Option(help="Host that clients are told, if another.")] = None,
    namespace: Annotated[str, typer.Option(help="Name of the cluster within the store.")] = "default",
    scale: Annotated[list[str] | None, typer.Option(help="ROLE=N: so many processes of a service.")] = None,
) -> None:
    """Start KafScale on this machine: etcd, five services, records in a directory."""
    console = Console(highlight=False)
    plan = UpPlan(
        data_dir=data_dir,
        host=listen,
        port=port,
        advertised_host=advertise,
        namespace=namespace,
        scale=_scale(scale or []),
    )

    def report(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    try:
        asyncio.run(Up(plan, report).run())
    except (CannotStart, DataDirBusy) as trouble:
        raise _fail(str(trouble)) from trouble


@app.command()
def produce(
    topic: str,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send to this partition only.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Splits key from value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="name=value, on every record.")
    ] = None,
    codec: Annotated[records.Codec, typer.Option("--compression", "-z")] = records.Codec.NONE,
) -> None:
    """Send each line of standard input as a record, and wait until all are durable."""
    headers = {name: value for name, _, value in (item.partition("=") for item in header or [])}
    plan = records.ProducePlan(
        topic=topic, partition=partition, key_separator=key_separator, headers=headers, codec=codec
    )
    delivered = records.produce_lines(_bootstrap(bootstrap_server, data_dir), plan, sys.stdin.buffer)
    Console(stderr=True, highlight=False).print(f"{delivered.acknowledged} records acknowledged")
    if delivered.failures:
        raise _fail(f"{len(delivered.failures)} failed, the first: {delivered.failures[0]}")


@app.command()
def consume(
    topic: str,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Read this partition only.")
    ] = None,
    offset: Annotated[
        str, typer.Option("--offset", "-o", help="beginning, end, a number, or -N.")
    ] = "beginning",
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the topic.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", help="Stop after so many records.")] = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object per record.")] = False,
    with_keys: Annotated[bool, typer.Option("--keys", "-k", help="Print key, tab, value.")] = False,
) -> None:
    """Print the records of a topic, one a line."""
    plan = records.ConsumePlan(
        topic=topic,
        partition=partition,
        start=offset,
        stop_at_end=exit_at_end,
        count_max=count,
        as_json=as_json,
        with_keys=with_keys,
    )
    try:
        for line in records.consume_lines(_bootstrap(bootstrap_server, data_dir), plan):
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
    except records.ClientTrouble as trouble:
        raise _fail(str(trouble)) from trouble
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def main() -> None:
    app()


if __name__ == "__main__":
    main()

"""The `kafscale` command.

Each command imports its libraries when it runs. Otherwise `up` would first import those of fsck, of the clients and of
S3, which takes longer than the start of etcd.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.acls import app as acls_app
from kafscale.cli.configs import app as configs_app
from kafscale.cli.cost.command import cost
from kafscale.cli.datadir import DEFAULT_DATA_DIR, DataDirBusy
from kafscale.cli.dump.command import dump
from kafscale.cli.etcd_repair import etcd_repair
from kafscale.cli.fsck.command import fsck
from kafscale.cli.groups import app as groups_app
from kafscale.cli.lake.compact import compact
from kafscale.cli.lake.export import export
from kafscale.cli.lake.lag import lag
from kafscale.cli.lake.orphans import orphans
from kafscale.cli.lake.retention import app as retention_app
from kafscale.cli.lake.sql import sql
from kafscale.cli.options import ROLES, Codec, SecurityProtocol, Shell, StoreKind
from kafscale.cli.quotas import app as quotas_app
from kafscale.cli.rights.command import etcd_roles, s3_policy
from kafscale.cli.serve import app as serve_app
from kafscale.cli.settle.command import settle
from kafscale.cli.status.command import status
from kafscale.cli.targets import (
    BootstrapOption,
    CommandConfigOption,
    DataDirOption,
    checked_namespace,
    place_of,
)
from kafscale.cli.terminal import fail, record_line, report
from kafscale.cli.topics import app as topics_app
from kafscale.cli.users import app as users_app
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdMissing

if TYPE_CHECKING:
    from kafscale.cli.up import UpPlan

COMPLETE_VARIABLE = "_KAFSCALE_COMPLETE"
RUN, RECORDS, CLUSTER, SHELL = "Run", "Records", "Look after a cluster", "Shell"
STORE = "Without a broker, from etcd and the object store"

app = typer.Typer(
    name="kafscale",
    help="A stateless Kafka-compatible system that keeps its records in an object store. "
    "To begin: `kafscale up` in one terminal; in another `echo hello | kafscale produce greetings` "
    "and `kafscale consume greetings --exit`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _scale(options: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for option in options:
        role, _, count = option.partition("=")
        if role not in ROLES or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f"'{option}': ROLE=N with one of {', '.join(ROLES)} and N from 1")
        wanted[role] = int(count)
    return wanted


EtcdQuotaOption = Annotated[
    int,
    typer.Option(envvar="KAFSCALE_ETCD_QUOTA_BYTES", min=16 << 20, help="Limit of etcd's database file."),
]
InMemoryOption = Annotated[
    bool, typer.Option(envvar="KAFSCALE_USE_MEMORY_S3", help="Remove all state at exit.")
]
InternalTlsOption = Annotated[
    bool | None,
    typer.Option(
        envvar="KAFSCALE_INTERNAL_TLS",
        help="Only this start's processes can talk to its services: each gets a certificate. Default: if there is an "
        "authorizer.",
        show_default=False,
    ),
]
ProtocolOption = Annotated[
    SecurityProtocol,
    typer.Option(
        "--security-protocol",
        case_sensitive=False,
        help="Of the port for clients. KAFSCALE_SSL_* name its certificate, KAFSCALE_AUTHORIZER turns ACLs on.",
    ),
]


def up(
    data_dir: Annotated[
        Path, typer.Option(envvar="KAFSCALE_DATA_DIR", help="Directory for all state.")
    ] = DEFAULT_DATA_DIR,
    port: Annotated[int, typer.Option(help="Port for Kafka clients.")] = 9092,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[str | None, typer.Option(help="Host for clients, if not --listen.")] = None,
    namespace: Annotated[
        str, typer.Option(help="Name of the cluster.", callback=checked_namespace)
    ] = "default",
    store: Annotated[
        StoreKind, typer.Option(help="Store of the records: the data directory (dir) or S3.")
    ] = StoreKind.DIR,
    scale: Annotated[list[str] | None, typer.Option(help="ROLE=N: N processes of a service.")] = None,
    upkeep: Annotated[bool, typer.Option(help="Run retention and other jobs hourly.")] = True,
    etcd_quota_bytes: EtcdQuotaOption = 8 << 30,
    in_memory: InMemoryOption = False,
    internal_tls: InternalTlsOption = None,
    security_protocol: ProtocolOption = SecurityProtocol.PLAINTEXT,
) -> None:
    """Start etcd, all services and upkeep on this machine. Example: kafscale up --port 9092 --scale produce=2"""
    from kafscale.cli.up import UpPlan

    # Of a temporary folder both etcd's state and the objects are removed at exit: neither is of use alone.
    with TemporaryDirectory(prefix="kafscale-") if in_memory else nullcontext(data_dir) as folder:
        plan = UpPlan(
            data_dir=Path(folder),
            host=listen,
            port=port,
            advertised_host=advertise,
            namespace=namespace,
            store=store,
            scale=_scale(scale or []),
            upkeep=upkeep,
            etcd_quota_bytes=etcd_quota_bytes,
            internal_tls=_has_authorizer() if internal_tls is None else internal_tls,
            protocol=security_protocol,
        )
        _run(plan)


def _has_authorizer() -> bool:
    """ACLs decide about the principal that a front door sends, so nobody else may send one."""
    return os.environ.get("KAFSCALE_AUTHORIZER", "none") != "none"


def _run(plan: UpPlan) -> None:
    from kafscale.cli.up import CannotStart, Up

    os.umask(0o077)  # the children inherit it: other users must not read what they write
    # Children are spawned by fork and exec; gRPC's fork handlers would only log warnings.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    try:
        asyncio.run(Up(plan, report).run())
    except (CannotStart, DataDirBusy, EtcdMissing, EtcdFailed) as trouble:
        raise fail(str(trouble)) from trouble


def produce(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send to this partition only.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Separator between key and value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="name=value, added to every record.")
    ] = None,
    codec: Annotated[
        Codec, typer.Option("--compression", "-z", help="Compression codec of batches.")
    ] = Codec.NONE,
) -> None:
    """Send each line of standard input as a record, and wait until all are durable.

    Example: echo 'k1:hello' | kafscale produce greetings --key-separator :
    """
    from kafscale.cli import records

    headers = {name: value for name, _, value in (item.partition("=") for item in header or [])}
    plan = records.ProducePlan(
        topic=topic, partition=partition, key_separator=key_separator, headers=headers, codec=codec
    )
    place = place_of(bootstrap_server, data_dir, command_config)
    try:
        delivered = records.produce_lines(place, plan, sys.stdin.buffer)
    except records.ClientTrouble as trouble:
        raise fail(str(trouble)) from trouble
    count = delivered.acknowledged
    typer.echo(f"{count} record{'s' * (count != 1)} acknowledged", err=True)
    if delivered.failures:
        raise fail(f"{len(delivered.failures)} failed, the first with: {delivered.failures[0]}")


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, from its committed offsets."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help="beginning, end, N or -N.")] = "beginning",
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the topic.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", help="Stop after N records.")] = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object per record.")] = False,
    with_keys: Annotated[bool, typer.Option("--keys", "-k", help="Print key, tab, value.")] = False,
) -> None:
    """Print the records of a topic, one per line. Example: kafscale consume greetings --offset -10 --exit"""
    from kafscale.cli import records

    plan = records.ConsumePlan(
        topic=topic,
        group=group,
        partition=partition,
        start=offset,
        stop_at_end=exit_at_end,
        count_max=count,
        as_json=as_json,
        with_keys=with_keys,
    )
    try:
        for line in records.consume_lines(place_of(bootstrap_server, data_dir, command_config), plan):
            sys.stdout.buffer.write(record_line(line) + b"\n")
            sys.stdout.buffer.flush()
    except records.ClientTrouble as trouble:
        raise fail(str(trouble)) from trouble
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script for a shell. Example: source <(kafscale completion bash)

    zsh: kafscale completion zsh > ~/.zfunc/_kafscale, with ~/.zfunc in fpath.
    fish: kafscale completion fish > ~/.config/fish/completions/kafscale.fish
    """
    from typer.completion import shell_complete

    command = context.find_root().command
    raise typer.Exit(shell_complete(command, {}, "kafscale", COMPLETE_VARIABLE, f"source_{shell.value}"))


app.command(rich_help_panel=RUN)(up)
app.add_typer(serve_app, rich_help_panel=RUN)
app.command(rich_help_panel=RECORDS)(produce)
app.command(rich_help_panel=RECORDS)(consume)
app.command(rich_help_panel=RECORDS)(dump)
app.command(rich_help_panel=CLUSTER)(status)
app.command(rich_help_panel=CLUSTER)(cost)
app.command(rich_help_panel=CLUSTER)(fsck)
app.command(rich_help_panel=CLUSTER)(settle)
app.command(rich_help_panel=CLUSTER)(etcd_repair)
app.command(rich_help_panel=CLUSTER)(etcd_roles)
app.command(rich_help_panel=CLUSTER)(s3_policy)
for _group in (topics_app, configs_app, groups_app, users_app, acls_app, quotas_app):
    app.add_typer(_group, rich_help_panel=CLUSTER)
for _command in (lag, sql, export, compact, orphans):
    app.command(rich_help_panel=STORE)(_command)
app.add_typer(retention_app, rich_help_panel=STORE)
app.command(rich_help_panel=SHELL)(completion)


def main() -> None:
    app()


if __name__ == "__main__":
    main()

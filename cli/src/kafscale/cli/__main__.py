"""The `kafscale` command.

Each command's module is imported when the command is used, and its libraries when its work begins. Otherwise `--help`
would first import those of fsck, of the clients and of S3.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.access.protocol import SecurityProtocol
from kafscale.cli.lazy import Lazy, LazyGroup
from kafscale.cli.options import COMPLETE_VARIABLE, DataDirType
from kafscale.cli.targets import checked_namespace
from kafscale.cli.terminal import fail, fail_usage, report
from kafscale.operations.services import ROLES
from kafscale.operations.target import DEFAULT_DATA_DIR, StoreKind
from kafscale.runtime.addresses import ANY_HOSTS, PORT_MAX

if TYPE_CHECKING:
    import socket

    from kafscale.cli.up_plan import UpPlan

RUN, RECORDS, CLUSTER, SHELL = "Run", "Records", "Look after a cluster", "Shell"
STORE = "Without a broker, from etcd and the object store"


class Commands(LazyGroup):
    PANELS = (RUN, RECORDS, CLUSTER, STORE, SHELL)
    LAZY = {
        "serve": Lazy("kafscale.cli.serve:app", RUN, "Run one service in this process, until SIGTERM."),
        "console": Lazy(
            "kafscale.cli.console:console", RUN, "Show the cluster in a web page: topics, records, groups."
        ),
        "produce": Lazy(
            "kafscale.cli.records.produce_command:produce",
            RECORDS,
            "Send each line of standard input as a record, and wait until all are durable.",
        ),
        "consume": Lazy(
            "kafscale.cli.records.consume_command:consume",
            RECORDS,
            "Print the records of topics, one per line.",
        ),
        "offsets": Lazy(
            "kafscale.cli.offsets:offsets",
            RECORDS,
            "Show the offset of a time or position in each partition.",
        ),
        "delete-records": Lazy(
            "kafscale.cli.offsets:delete_records",
            RECORDS,
            "Delete the records of a topic before a position.",
        ),
        "dump": Lazy(
            "kafscale.cli.dump:dump",
            RECORDS,
            "Print the content of a segment or a bundle, with all checksums; exits 1 if it is damaged.",
        ),
        "status": Lazy(
            "kafscale.cli.status:status",
            CLUSTER,
            "Show the cluster: its instances, their partitions, health and rates; exits 1 if clients are not served.",
        ),
        "brokers": Lazy("kafscale.cli.brokers:brokers", CLUSTER, "Show the brokers of a cluster."),
        "cost": Lazy(
            "kafscale.cli.cost:cost",
            CLUSTER,
            "Show the requests to S3 and their price: for a load, or what a running cluster does now.",
        ),
        "fsck": Lazy(
            "kafscale.cli.fsck:fsck",
            CLUSTER,
            "Check that etcd and the object store agree; exits 1 if they do not.",
        ),
        "settle": Lazy(
            "kafscale.cli.settle:settle",
            CLUSTER,
            "Move the records in bundles into segments now, and wait until none is left; exits 1 if some are.",
        ),
        "etcd-repair": Lazy(
            "kafscale.cli.etcd_repair:etcd_repair",
            CLUSTER,
            "Free space in a full etcd (NOSPACE) and clear its alarm.",
        ),
        "etcd-roles": Lazy(
            "kafscale.cli.rights:etcd_roles",
            CLUSTER,
            "Print the etcd roles and users of all processes as etcdctl commands, or give them to an etcd.",
        ),
        "s3-policy": Lazy(
            "kafscale.cli.rights:s3_policy",
            CLUSTER,
            "Print the IAM policy of a role for the bucket, as JSON.",
        ),
        "topics": Lazy(
            "kafscale.cli.topics:app",
            CLUSTER,
            "List, describe, create and delete topics, and add partitions.",
        ),
        "configs": Lazy("kafscale.cli.configs:app", CLUSTER, "Show and change the settings of a topic."),
        "groups": Lazy(
            "kafscale.cli.groups:app",
            CLUSTER,
            "List, describe and delete consumer groups, and reset their offsets.",
        ),
        "transactions": Lazy(
            "kafscale.cli.transactions:app",
            CLUSTER,
            "List and describe transactions, find those that hang, and abort them.",
        ),
        "users": Lazy(
            "kafscale.cli.users:app",
            CLUSTER,
            "Create, list and remove the users of SASL/SCRAM and SASL/PLAIN, and change their passwords.",
        ),
        "acls": Lazy(
            "kafscale.cli.acls:app", CLUSTER, "Add, list and remove ACLs: which principal may do what."
        ),
        "quotas": Lazy(
            "kafscale.cli.quotas:app",
            CLUSTER,
            "Set, list and remove quotas: how much a user, a client id or an address may use.",
        ),
        "backup": Lazy(
            "kafscale.cli.backup:app",
            CLUSTER,
            "Store snapshots of etcd in the object store, and read them.",
        ),
        "lag": Lazy(
            "kafscale.cli.lake.lag:lag",
            STORE,
            "Show each group's lag, whether it keeps up, and when it loses records.",
        ),
        "sql": Lazy(
            "kafscale.cli.lake.sql:sql", STORE, "Query topics with SQL, on a running or a stopped cluster."
        ),
        "export": Lazy(
            "kafscale.cli.lake.export:export",
            STORE,
            "Export topics to Parquet files, one folder per partition; again, only the new records.",
        ),
        "compact": Lazy(
            "kafscale.cli.lake.compact:compact",
            STORE,
            "Compact topics with cleanup.policy=compact that are due; the dirtiest log first.",
        ),
        "orphans": Lazy(
            "kafscale.cli.lake.orphans:orphans",
            STORE,
            "Delete orphaned objects: objects that crashes left and that no commit can ever name.",
        ),
        "retention": Lazy(
            "kafscale.cli.lake.retention:app",
            STORE,
            "Delete expired records at once, or show what other limits would save and cost.",
        ),
        "completion": Lazy(
            "kafscale.cli.completion:completion", SHELL, "Print the completion script for a shell."
        ),
        "profile": Lazy(
            "kafscale.cli.profile:app",
            SHELL,
            "Name clusters: their addresses and logins, for all commands that use the Kafka protocol.",
        ),
        "version": Lazy("kafscale.cli.version:version", SHELL, "Show the version of KafScale."),
    }


app = typer.Typer(
    name="kafscale",
    cls=Commands,
    rich_markup_mode=None,
    add_completion=False,  # `kafscale completion` does it
    help="A stateless Kafka-compatible system that keeps its records in an object store. "
    "To begin: `kafscale up` in one terminal; in another `echo hello | kafscale produce greetings` "
    "and `kafscale consume greetings --exit`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from kafscale.cli.version import line

        typer.echo(line())
        raise typer.Exit


def _names_of_profiles() -> list[str]:
    """For a shell that completes a line."""
    from kafscale.operations.profiles import profiles

    return profiles().names()


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar="KAFSCALE_PROFILE",
            autocompletion=_names_of_profiles,
            help="Use this profile (`kafscale profile create`).",
        ),
    ] = None,
) -> None:
    source = context.get_parameter_source("profile")
    if profile is not None and source is not None and source.name == "COMMANDLINE":
        name, group = context.invoked_subcommand, context.command
        assert isinstance(group, Commands)
        if name is not None and not takes_command_config(group.commands[name]):
            raise fail_usage(f"`kafscale {name}` does not use the Kafka protocol, so it takes no --profile")


def takes_command_config(command: Any) -> bool:
    """Whether it, or one of the commands in it, asks by the Kafka protocol."""
    below = getattr(command, "commands", {}).values()
    return any(each.name == "command_config" for each in command.params) or any(
        map(takes_command_config, below)
    )


def _scale(options: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for option in options:
        role, _, count = option.partition("=")
        if role not in ROLES or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f"'{option}': ROLE=N with one of {', '.join(ROLES)} and N from 1")
        wanted[role] = int(count)
    return wanted


def bare_host(host: str | None) -> str | None:
    """The callback of options that name a host: an IPv6 address may be in brackets, as in URLs."""
    return None if host is None else host.removeprefix("[").removesuffix("]")


AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        help="Host that clients connect to, if not --listen. Needed with --listen 0.0.0.0.",
        callback=bare_host,
    ),
]
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
        Path,
        typer.Option(envvar="KAFSCALE_DATA_DIR", help="Directory for all state.", click_type=DataDirType()),
    ] = DEFAULT_DATA_DIR,
    port: Annotated[int, typer.Option(min=1, max=PORT_MAX, help="Port for Kafka clients.")] = 9092,
    listen: Annotated[str, typer.Option(help="Address to listen on.", callback=bare_host)] = "127.0.0.1",
    advertise: AdvertiseOption = None,
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
    console: Annotated[
        bool, typer.Option(envvar="KAFSCALE_CONSOLE", help="Start the web console too, on this machine.")
    ] = True,
    console_port: Annotated[
        int, typer.Option(envvar="KAFSCALE_CONSOLE_PORT", min=1, max=PORT_MAX, help="Port of the console.")
    ] = 8480,
) -> None:
    """Start etcd, all services and upkeep on this machine. Example: kafscale up --port 9092 --scale produce=2"""
    from kafscale.cli.up_plan import UpPlan

    _check_advertised(listen, advertise)
    _run(
        UpPlan(
            data_dir=data_dir,
            in_memory=in_memory,
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
            console_port=console_port if console else None,
        )
    )


def _check_advertised(listen: str, advertise: str | None) -> None:
    """Each front door would end at its start, again and again: clients cannot connect to every address."""
    if (listen if advertise is None else advertise) not in ANY_HOSTS:
        return
    if advertise is None:
        raise fail_usage(
            f"--listen {listen or repr(listen)} is every address of this machine; name the host that clients "
            "connect to with --advertise, such as --advertise kafka.example.com"
        )
    raise fail_usage(f"--advertise {advertise or repr(advertise)}: clients cannot connect to it; name a host")


def _has_authorizer() -> bool:
    """ACLs decide about the principal that a front door sends, so nobody else may send one."""
    return os.environ.get("KAFSCALE_AUTHORIZER", "none") != "none"


def _run(plan: UpPlan) -> None:
    """Ends the process, and each process that it forks."""
    from functools import partial

    os.umask(0o077)  # the children inherit it: other users must not read what they write
    # Processes are forked before gRPC has a channel or a thread; its fork handlers would only log warnings.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    from kafscale.cli.fork_server import run_forked

    raise typer.Exit(run_forked(partial(_supervise, plan), plan.programs(), shared="kafscale.cli.up"))


def _supervise(plan: UpPlan, channel: socket.socket) -> int:
    """Runs the supervisor; its exit code."""
    import asyncio
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from kafscale.cli.forked import ForkClient
    from kafscale.cli.up import CannotStart, Up
    from kafscale.operations.datadir import DataDirBusy, DataDirUnusable
    from kafscale.runtime.etcd_binary import EtcdFailed
    from kafscale.runtime.etcd_program import EtcdMissing

    # Of a temporary folder both etcd's state and the objects are removed at exit: neither is of use alone.
    with TemporaryDirectory(prefix="kafscale-") if plan.in_memory else nullcontext(plan.data_dir) as folder:
        try:
            asyncio.run(Up(replace(plan, data_dir=Path(folder)), ForkClient(channel), report).run())
        except (CannotStart, DataDirBusy, DataDirUnusable, EtcdMissing, EtcdFailed) as trouble:
            return fail(str(trouble)).exit_code
    return 0


app.command(rich_help_panel=RUN)(up)


def main() -> None:
    if COMPLETE_VARIABLE in os.environ:  # a shell completes a line
        from typer._completion_classes import completion_init

        completion_init()
    app()


if __name__ == "__main__":
    main()

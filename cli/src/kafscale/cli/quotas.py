"""`kafscale quotas`, with the names of kafka-configs for users, client ids, addresses and their defaults."""

from __future__ import annotations

from typing import Annotated

import typer
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail_usage, notice, show_rows
from kafscale.cli.topics import pairs

app = typer.Typer(
    name="quotas",
    help="Set, list and remove quotas: how much a user, a client id or an address may use.",
    no_args_is_help=True,
)

UserOption = Annotated[str | None, typer.Option("--user", help="Name of a user.")]
UserDefaultsOption = Annotated[
    bool, typer.Option("--user-defaults", help="Each user without a quota of its own.")
]
ClientOption = Annotated[str | None, typer.Option("--client", help="A client id.")]
ClientDefaultsOption = Annotated[
    bool, typer.Option("--client-defaults", help="Each client id without a quota of its own.")
]
IpOption = Annotated[str | None, typer.Option("--ip", help="An IP address.")]
IpDefaultsOption = Annotated[
    bool, typer.Option("--ip-defaults", help="Each address without a quota of its own.")
]
Named = dict[str, str | None]


@app.command("set")
def set_(
    quota: Annotated[
        list[str],
        typer.Argument(
            help="One or more KEY=VALUE: producer_byte_rate, consumer_byte_rate, request_percentage, "
            "controller_mutation_rate; for addresses connection_creation_rate."
        ),
    ],
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client: ClientOption = None,
    client_defaults: ClientDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Set quotas; others stay. Example: kafscale quotas set producer_byte_rate=1048576 --user alice"""
    from kafscale.client.quotas import alter_quotas, sentence_of

    entity = _named(_entity(user, user_defaults, client, client_defaults, ip, ip_defaults))
    values = {key: _number(key, text) for key, text in pairs(quota, "quotas set").items()}
    with kafka(bootstrap_server, data_dir, command_config) as cluster:
        alter_quotas(cluster, entity, values)
    notice(f"{sentence_of(entity)}: {', '.join(quota)}")


@app.command()
def remove(
    quota: Annotated[list[str] | None, typer.Argument(help="Names of quotas. Default: all of them.")] = None,
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client: ClientOption = None,
    client_defaults: ClientDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Remove quotas. Example: kafscale quotas remove producer_byte_rate --user alice"""
    from kafscale.client.quotas import remove_quotas, sentence_of

    entity = _named(_entity(user, user_defaults, client, client_defaults, ip, ip_defaults))
    with kafka(bootstrap_server, data_dir, command_config) as cluster:
        removed = remove_quotas(cluster, entity, quota or [])
    notice(f"{sentence_of(entity)}: removed {', '.join(removed)}")


@app.command("list")
def list_(
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client: ClientOption = None,
    client_defaults: ClientDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show quotas; without options all. Example: kafscale quotas list --user alice --output json"""
    from kafscale.client.quotas import list_quotas

    entity = _entity(user, user_defaults, client, client_defaults, ip, ip_defaults)
    with kafka(bootstrap_server, data_dir, command_config) as cluster:
        rows = list_quotas(cluster, entity)
    show_rows(["user", "client-id", "ip", "quota", "value"], rows, output)
    if not rows:
        notice("no quota fits")


def _entity(
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> Named:
    given = {
        "user": (user, user_defaults),
        "client-id": (client, client_defaults),
        "ip": (ip, ip_defaults),
    }
    for kind, (name, defaults) in given.items():
        if name is not None and defaults:
            raise fail_usage(f"quotas: give the name of the {kind} or its defaults, not both")
        if name == "":
            raise fail_usage(f"quotas: the name of the {kind} is empty")
    if (ip is not None or ip_defaults) and len([1 for name, has in given.values() if name or has]) > 1:
        raise fail_usage("quotas: an address cannot be combined with a user or a client id")
    return {kind: name for kind, (name, defaults) in given.items() if name is not None or defaults}


def _named(entity: Named) -> Named:
    if not entity:
        raise fail_usage("quotas: name a user, a client id or an address, or one of their defaults")
    return entity


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise fail_usage(f"quotas set: the value of {key} is no number: '{text}'") from None

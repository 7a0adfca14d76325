"""`kafscale acls`, with the options of kafka-acls."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from kafscale.access.acl import AclBinding, PatternType
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, notice, show_rows
from kafscale.client.acl_options import (
    Entries,
    Resources,
    WrongOptions,
    bindings_of,
    filters_of,
    filters_to_remove,
)
from kafscale.operations.sentences import counted

app = typer.Typer(
    name="acls",
    help="Add, list and remove ACLs: which principal may do what. The options are those of kafka-acls.",
    no_args_is_help=True,
)

COLUMNS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


class Pattern(StrEnum):
    LITERAL = "literal"
    PREFIXED = "prefixed"
    ANY = "any"
    MATCH = "match"


TopicsOption = Annotated[list[str] | None, typer.Option("--topic", help="Topic; * is every topic.")]
GroupsOption = Annotated[list[str] | None, typer.Option("--group", help="Consumer group.")]
IdsOption = Annotated[list[str] | None, typer.Option("--transactional-id", help="Transactional id.")]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PatternOption = Annotated[
    Pattern,
    typer.Option(
        "--resource-pattern-type",
        case_sensitive=False,
        help="What a name is. To list and remove also any, and match: all patterns that apply to the name.",
    ),
]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow-principal", help="User:NAME; User:* means all users.")
]
DenyOption = Annotated[list[str] | None, typer.Option("--deny-principal", help="Denied before others allow.")]
AllowHostOption = Annotated[list[str] | None, typer.Option("--allow-host", help="IP address. Default: *.")]
DenyHostOption = Annotated[list[str] | None, typer.Option("--deny-host", help="IP address. Default: *.")]
OperationOption = Annotated[
    list[str] | None, typer.Option("--operation", help="read, write, describe-configs, … Default: all.")
]
ProducerOption = Annotated[bool, typer.Option("--producer", help="What a producer to --topic needs.")]
ConsumerOption = Annotated[
    bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")
]


@app.command()
def add(
    topic: TopicsOption = None,
    group: GroupsOption = None,
    transactional_id: IdsOption = None,
    cluster: ClusterOption = False,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    allow_host: AllowHostOption = None,
    deny_host: DenyHostOption = None,
    operation: OperationOption = None,
    producer: ProducerOption = False,
    consumer: ConsumerOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Add ACLs. Example: kafscale acls add --allow-principal User:alice --operation read --topic orders"""
    from kafscale.client.acls import create_acls

    resources = Resources(topic, group, transactional_id, cluster, PatternType[resource_pattern_type.name])
    entries = Entries(allow_principal, deny_principal, allow_host, deny_host, operation, producer, consumer)
    try:
        acls = bindings_of(resources, entries)
    except WrongOptions as wrong:
        raise fail_usage(str(wrong)) from wrong
    with kafka(bootstrap_server, data_dir, command_config) as client:
        create_acls(client, acls)
    notice(f"{counted(len(acls), 'ACL')} added")


@app.command()
def remove(
    topic: TopicsOption = None,
    group: GroupsOption = None,
    transactional_id: IdsOption = None,
    cluster: ClusterOption = False,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    allow_host: AllowHostOption = None,
    deny_host: DenyHostOption = None,
    operation: OperationOption = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove the ACLs that were added with these options; without a principal, all of the resources.

    Example: kafscale acls remove --topic orders
    """
    from kafscale.client.acls import delete_acls

    resources = Resources(topic, group, transactional_id, cluster, PatternType[resource_pattern_type.name])
    entries = Entries(allow_principal, deny_principal, allow_host, deny_host, operation)
    try:
        filters = filters_to_remove(resources, entries)
    except WrongOptions as wrong:
        raise fail_usage(str(wrong)) from wrong
    with kafka(bootstrap_server, data_dir, command_config) as client:
        deleted = delete_acls(client, filters)
    _show(deleted, output)
    if not deleted:
        raise fail("no ACL fits; `kafscale acls list` shows all")
    notice(f"{counted(len(deleted), 'ACL')} removed")


@app.command("list")
def list_(
    topic: TopicsOption = None,
    group: GroupsOption = None,
    transactional_id: IdsOption = None,
    cluster: ClusterOption = False,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    principal: Annotated[
        list[str] | None, typer.Option("--principal", help="Only ACLs of this principal.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show ACLs. Example: kafscale acls list --topic orders --resource-pattern-type match"""
    from kafscale.client.acls import list_acls

    resources = Resources(topic, group, transactional_id, cluster, PatternType[resource_pattern_type.name])
    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = list_acls(client, filters_of(resources, principal or ()))
    _show(found, output)
    if not found:
        notice("no ACL fits")


def _show(acls: Iterable[AclBinding], output: Output) -> None:
    rows: list[dict[str, Any]] = [
        {
            "resource": acl.resource_type.name.lower(),
            "name": acl.resource_name,
            "pattern": acl.pattern_type.name.lower(),
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name.lower(),
            "permission": acl.permission.name.lower(),
        }
        for acl in acls
    ]
    show_rows(COLUMNS, rows, output)

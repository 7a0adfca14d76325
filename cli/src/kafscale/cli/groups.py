"""`kafscale groups`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, notice, show_rows

EARLIEST, LATEST = -2, -1
GroupArgument = Annotated[str, typer.Argument(help="Name of the group.")]

app = typer.Typer(
    name="groups",
    help="List, describe and delete consumer groups, and reset their offsets.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all consumer groups. Example: kafscale groups list"""
    from kafscale.client.groups import list_all_groups

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = list_all_groups(client)
    show_rows(["group", "type", "state", "protocol"], rows, output)
    if not rows:
        notice("no groups: `kafscale consume TOPIC --group NAME` creates one")


@app.command()
def describe(
    group: GroupArgument,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the committed offset, lag and member of each partition of a group. Example: kafscale groups describe billing

    `kafscale lag` shows more: lag in bytes and time, rates, and records that will expire unread.
    """
    from kafscale.client.groups import describe_group

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = describe_group(client, group)
    columns = ["topic", "partition", "committed", "end", "lag", "stable_end", "stable_lag", "client", "host"]
    if output is not Output.TABLE:
        columns = ["group", "state", *columns, "member"]
    show_rows(columns, rows, output)
    if not rows:
        notice(f"group '{group}' has no committed offsets and no members that read")


@app.command()
def delete(
    group: Annotated[list[str], typer.Argument(help="Names of groups.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete groups without members, with their committed offsets. Example: kafscale groups delete billing

    Shows the offsets, and asks. If one of the groups does not exist or has members, none is deleted.
    """
    from kafscale.client.admin_client import one_by_one
    from kafscale.client.groups import delete_group
    from kafscale.operations.deletions import deletion_of_groups

    way, names = chosen_way(dry_run=dry_run, yes=yes), list(dict.fromkeys(group))
    with kafka(bootstrap_server, data_dir, command_config) as client:
        if agreed(way, deletion_of_groups(client, names), output):
            for name in one_by_one(names, partial(delete_group, client)):
                notice(f"deleted group '{name}'")


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets are reset.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time such as 2026-01-31T08:00.")],
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reset the committed offsets of a group without members.

    Example: kafscale groups reset-offsets billing -t orders --to earliest

    A time selects the first record of that time or later, else the end. A time without zone is UTC.
    Shows the offsets and the records that the group would skip, and asks. A group that does not exist is created.
    """
    from kafscale.client.groups import commit_offsets, planned_offsets
    from kafscale.operations.deletions import RESET_COLUMNS, reset_of_offsets

    target, way = target_of(to), chosen_way(dry_run=dry_run, yes=yes)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = planned_offsets(client, group, topic, partition, target.value, is_time=target.is_time)
        if not rows:
            raise fail(f"topic '{topic}' has no partition {partition}")
        if agreed(way, reset_of_offsets(group, rows), output):
            commit_offsets(client, group, {(topic, row["partition"]): row["after"] for row in rows})
            show_rows(RESET_COLUMNS, rows, output)
            notice(f"reset the offsets of group '{group}'")


@dataclass(frozen=True, slots=True)
class Target:
    """An offset, or a time in ms as ListOffsets takes it."""

    value: int
    is_time: bool


def target_of(text: str) -> Target:
    if text == "earliest":
        return Target(EARLIEST, is_time=True)
    if text == "latest":
        return Target(LATEST, is_time=True)
    if text.isdecimal():
        return Target(int(text), is_time=False)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise fail_usage(
            f"--to: '{text}' is neither earliest nor latest, nor an offset, nor a time such as 2026-01-31T08:00"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return Target(int(time.timestamp() * 1000), is_time=True)

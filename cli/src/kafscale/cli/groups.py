"""`kafscale groups`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer
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
    from kafscale.cli.kafka.groups import list_all_groups

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
    from kafscale.cli.kafka.groups import describe_group

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = describe_group(client, group)
    columns = ["topic", "partition", "committed", "end", "lag", "client", "host"]
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
) -> None:
    """Delete groups without members, with their committed offsets. Example: kafscale groups delete billing"""
    from kafscale.cli.kafka.groups import delete_group

    with kafka(bootstrap_server, data_dir, command_config) as client:
        for each in group:
            delete_group(client, each)
            notice(f"deleted group '{each}'")


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets are reset.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time such as 2026-01-31T08:00.")],
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show the result without changing anything.")] = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reset the committed offsets of a group without members.

    Example: kafscale groups reset-offsets billing -t orders --to earliest

    A time selects the first record of that time or later, else the end. A time without zone is UTC.
    """
    from kafscale.cli.kafka.groups import commit_offsets, planned_offsets

    target = target_of(to)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = planned_offsets(client, group, topic, partition, target.value, is_time=target.is_time)
        if rows and not dry_run:
            commit_offsets(client, group, {(topic, row["partition"]): row["after"] for row in rows})
    if not rows:
        raise fail(f"topic '{topic}' has no partition {partition}")
    show_rows(["topic", "partition", "before", "after"], rows, output)
    notice("dry run: nothing was changed" if dry_run else f"reset the offsets of group '{group}'")


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

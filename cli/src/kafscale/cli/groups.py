"""`kafscale groups`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, notice, show_rows
from kafscale.operations.consent import Doomed, listed

EARLIEST, LATEST = -2, -1
RESET_COLUMNS = ("topic", "partition", "before", "after")
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
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete groups without members, with their committed offsets. Example: kafscale groups delete billing

    Shows the offsets, and asks. If one of the groups does not exist or has members, none is deleted.
    """
    from kafscale.client.admin_client import before_deletion, one_by_one
    from kafscale.client.groups import delete_group, offsets_to_delete

    way, names = chosen_way(dry_run=dry_run, yes=yes), list(dict.fromkeys(group))
    with kafka(bootstrap_server, data_dir, command_config) as client:
        with before_deletion():
            rows = offsets_to_delete(client, names)
        offsets = sum(row["committed"] is not None for row in rows)
        doomed = Doomed(
            what=f"{len(names)} group{'s' * (len(names) != 1)} with {offsets} committed offsets",
            question=f"Delete {listed(names)}? Its consumers then start as those of a new group.",
            columns=("group", "topic", "partition", "committed", "end", "lag"),
            rows=rows,
        )
        if agreed(way, doomed, output):
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

    target, way = target_of(to), chosen_way(dry_run=dry_run, yes=yes)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = planned_offsets(client, group, topic, partition, target.value, is_time=target.is_time)
        if not rows:
            raise fail(f"topic '{topic}' has no partition {partition}")
        if agreed(way, _reset(group, rows), output):
            commit_offsets(client, group, {(topic, row["partition"]): row["after"] for row in rows})
            show_rows(RESET_COLUMNS, rows, output)
            notice(f"reset the offsets of group '{group}'")


def _reset(group: str, rows: list[dict[str, Any]]) -> Doomed:
    """The group skips what lies between its offset, or the log start, and the new offset."""
    from kafscale.lake.unread import Going, unread

    going = [
        Going(topic=row["topic"], partition=row["partition"], start=row["start"], end=row["after"])
        for row in rows
    ]
    committed = {row["partition"]: row["before"] for row in rows if row["before"] is not None}
    back = sum(max(0, (row["before"] or 0) - row["after"]) for row in rows)
    topic, places = rows[0]["topic"], f"{len(rows)} partition{'s' * (len(rows) != 1)}"
    if committed:
        what = (
            f"offsets of group '{group}' in {places} of topic '{topic}'; it would read {back:,} records again"
        )
    else:
        what = f"group '{group}' has no offsets in topic '{topic}' yet; it gets them in {places}"
    return Doomed(
        what=what,
        question="Reset them?",
        columns=RESET_COLUMNS,
        rows=[{name: row[name] for name in RESET_COLUMNS} for row in rows],
        losses=unread(going, {(group, topic): committed}),
        losing="would skip",
    )


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

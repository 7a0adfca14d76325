"""`kafscale offsets` and `kafscale delete-records`: a position in each partition, and a new start at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.options import PartitionsOption
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail_usage, notice, show_rows
from kafscale.operations.positions import (
    HELP,
    Log,
    Position,
    PositionWrong,
    chosen,
    located,
    now_ms,
    parse_partitions,
    parse_position,
)

if TYPE_CHECKING:
    from kafscale.client.admin_client import Client
    from kafscale.client.topics import TopicPart


def offsets(
    topic: Annotated[list[str], typer.Argument(help="Names of topics.")],
    at: Annotated[str, typer.Option("--at", help=f"The position: {HELP}.")] = "end",
    partition: PartitionsOption = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the offset of a time or position in each partition. Example: kafscale offsets orders --at -1h

    A time selects the first record of that time or later, else the end.
    """
    position, numbers = _parsed("--at", at, partition)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = _located(client, topic, position, numbers)
    rows = [
        {"topic": name, "partition": number, "offset": log.at, "start": log.start, "end": log.end}
        for (name, number), log in found.items()
    ]
    show_rows(["topic", "partition", "offset", "start", "end"], rows, output)


def delete_records(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    before: Annotated[str, typer.Option("--before", help=f"The new start of each partition: {HELP}.")],
    partition: PartitionsOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the records of a topic before a position. This cannot be undone.

    Example: kafscale delete-records orders --before 2026-01-31T08:00 --dry-run

    Shows the records and the groups that have not read them, and asks.
    """
    position, numbers = _parsed("--before", before, partition)
    way = chosen_way(dry_run=dry_run, yes=yes)
    from kafscale.client.topics import delete_before
    from kafscale.operations.deletions import deletion_of_records

    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = _located(client, [topic], position, numbers)
        going = {place: log for place, log in found.items() if log.at > log.start}
        plan = deletion_of_records(client, topic, going)
        if not agreed(way, plan, output):
            return
        if going:
            delete_before(client, {place: log.at for place, log in going.items()})
    notice(f"deleted {plan.what}")


def _parsed(option: str, text: str, partitions: list[str] | None) -> tuple[Position, frozenset[int] | None]:
    try:
        position = parse_position(text, now_ms())
        return position, None if partitions is None else parse_partitions(partitions)
    except PositionWrong as wrong:
        raise fail_usage(f"{option}: {wrong}") from wrong


def _located(
    client: Client, topics: list[str], position: Position, numbers: frozenset[int] | None
) -> dict[TopicPart, Log]:
    from kafscale.client.topics import find_topics

    places = [
        (topic.name, number)
        for topic in find_topics(client, topics)
        for number in chosen(topic.name, (part.id for part in topic.partitions), numbers)
    ]
    return located(client, places, position)

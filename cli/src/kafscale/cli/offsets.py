"""`kafscale offsets` and `kafscale delete-records`: a position in each partition, and a new start at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.positions import (
    HELP,
    Log,
    PartitionsOption,
    Position,
    PositionWrong,
    chosen,
    located,
    parse_partitions,
    parse_position,
)
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, can_ask, counted, fail, fail_usage, notice, show_rows
from kafscale.cli.times import now_ms

if TYPE_CHECKING:
    from kafscale.cli.kafka.client import Client
    from kafscale.cli.kafka.topics import TopicPart


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the records of a topic before a position. This cannot be undone.

    Example: kafscale delete-records orders --before 2026-01-31T08:00 --dry-run

    It shows what will be deleted, and asks on a terminal. A script needs --yes.
    """
    position, numbers = _parsed("--before", before, partition)
    if not (dry_run or yes or can_ask()):
        raise fail_usage("there is no terminal to ask; give --yes, or --dry-run to see what would be deleted")
    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = _located(client, [topic], position, numbers)
        show_rows(
            ["topic", "partition", "start", "start_after", "records"], list(map(_row, found.items())), output
        )
        total = sum(log.at - log.start for log in found.values())
        if dry_run or not total:
            notice(f"{counted(total, 'record')} would be deleted; nothing was changed")
            return
        if not yes and not typer.confirm(f"Delete {counted(total, 'record')} of topic '{topic}'?", err=True):
            raise fail("nothing was changed")
        from kafscale.cli.kafka.log_starts import delete_before

        delete_before(client, {place: log.at for place, log in found.items() if log.at > log.start})
    notice(f"deleted {counted(total, 'record')} of topic '{topic}'")


def _row(item: tuple[TopicPart, Log]) -> dict[str, Any]:
    """`records`: the number of offsets. A compacted topic may have fewer records."""
    (topic, number), log = item
    return {
        "topic": topic,
        "partition": number,
        "start": log.start,
        "start_after": log.at,
        "records": log.at - log.start,
    }


def _parsed(option: str, text: str, partitions: list[str] | None) -> tuple[Position, frozenset[int] | None]:
    try:
        position = parse_position(text, now_ms())
        return position, None if partitions is None else parse_partitions(partitions)
    except PositionWrong as wrong:
        raise fail_usage(f"{option}: {wrong}") from wrong


def _located(
    client: Client, topics: list[str], position: Position, numbers: frozenset[int] | None
) -> dict[TopicPart, Log]:
    from kafscale.cli.kafka.topics import find_topics

    places = [
        (topic.name, number)
        for topic in find_topics(client, topics)
        for number in chosen(topic.name, (part.id for part in topic.partitions), numbers)
    ]
    return located(client, places, position)

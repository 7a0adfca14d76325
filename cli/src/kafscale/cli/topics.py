"""`kafscale topics`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail_usage, notice, show_rows

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]

app = typer.Typer(
    name="topics",
    help="List, describe, create and delete topics, and add partitions.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all topics. Example: kafscale topics list --output json"""
    from kafscale.client.topics import list_topics

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = list_topics(client)
    columns = ["topic", "partitions"] if output is Output.TABLE else ["topic", "partitions", "topic_id"]
    show_rows(columns, rows, output)
    if not rows:
        notice("no topics yet: create one with `kafscale topics create NAME`, or send a record")


@app.command()
def describe(
    topic: Annotated[list[str], typer.Argument(help="Names of topics.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the partitions of topics: leader, epoch, first offset, end. Example: kafscale topics describe orders"""
    from kafscale.client.topics import describe_topics

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = describe_topics(client, topic)
    show_rows(["topic", "partition", "leader", "leader_epoch", "start", "end"], rows, output)


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Number of partitions. Default: the server's."),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", help="KEY=VALUE; can be repeated.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Create a topic. Example: kafscale topics create orders -p 12 -c retention.ms=86400000"""
    from kafscale.client.topics import create_topic

    configs = pairs(config or [], "--config")
    with kafka(bootstrap_server, data_dir, command_config) as client:
        count = create_topic(client, topic, partitions, configs)
    size = "" if count is None else f" with {count} partition{'s' * (count != 1)}"
    notice(f"created topic '{topic}'{size}")


@app.command()
def alter(
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="New number of partitions.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Add partitions to a topic. Partitions cannot be removed. Example: kafscale topics alter orders -p 24"""
    from kafscale.client.topics import add_partitions

    with kafka(bootstrap_server, data_dir, command_config) as client:
        add_partitions(client, topic, partitions)
    notice(f"topic '{topic}' now has {partitions} partitions")


@app.command()
def delete(
    topic: Annotated[list[str], typer.Argument(help="Names of topics.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete topics with all their records. This cannot be undone. Example: kafscale topics delete orders

    Shows the records and the groups that have not read them, and asks. If one of the topics does not exist, none is
    deleted.
    """
    from kafscale.client.admin_client import one_by_one
    from kafscale.client.topics import delete_topic
    from kafscale.operations.deletions import deletion_of_topics

    way, names = chosen_way(dry_run=dry_run, yes=yes), list(dict.fromkeys(topic))
    with kafka(bootstrap_server, data_dir, command_config) as client:
        if agreed(way, deletion_of_topics(client, names), output):
            for name in one_by_one(names, partial(delete_topic, client)):
                notice(f"deleted topic '{name}'")


def pairs(words: list[str], what: str) -> dict[str, str]:
    """Parses words of the form KEY=VALUE."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise fail_usage(f"{what}: '{word}' is not KEY=VALUE")
    return {key: value for key, _, value in (word.partition("=") for word in words)}

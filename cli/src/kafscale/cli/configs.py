"""`kafscale configs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, notice, show_rows
from kafscale.cli.topics import TopicArgument, pairs

if TYPE_CHECKING:
    from kafscale.client.admin_client import Client

app = typer.Typer(name="configs", help="Show and change the settings of a topic.", no_args_is_help=True)


@app.command()
def describe(
    topic: TopicArgument,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also show the server's defaults.")] = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the configs that are set on a topic. Example: kafscale configs describe orders --all"""
    from kafscale.client.topics import describe_topic_configs

    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = describe_topic_configs(client, topic)
    rows = [row for row in found if every or row["source"] == "topic"]
    show_rows(["key", "value", "source", "read_only"], rows, output)
    if not rows:
        notice(f"no config is set on topic '{topic}'; --all shows the effective values")


@app.command("set")
def set_(
    topic: TopicArgument,
    config: Annotated[list[str], typer.Argument(help="One or more KEY=VALUE.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Set settings of a topic; others stay. Example: kafscale configs set orders retention.ms=86400000"""
    values: dict[str, str | None] = {**pairs(config, "configs set")}
    with kafka(bootstrap_server, data_dir, command_config) as client:
        _alter(client, topic, values)


@app.command()
def unset(
    topic: TopicArgument,
    key: Annotated[list[str], typer.Argument(help="Names of settings.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Remove settings of a topic; the defaults apply again. Example: kafscale configs unset orders retention.ms"""
    with kafka(bootstrap_server, data_dir, command_config) as client:
        _alter(client, topic, dict.fromkeys(key))


def _alter(client: Client, topic: str, values: Mapping[str, str | None]) -> None:
    from kafscale.client.topics import alter_topic_configs

    alter_topic_configs(client, topic, values)
    done = ", ".join(
        f"{key}={value}" if value is not None else f"{key} unset" for key, value in values.items()
    )
    notice(f"topic '{topic}': {done}")

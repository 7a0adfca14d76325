"""`kafscale brokers`."""

from __future__ import annotations

from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, notice, show_rows


def brokers(
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the brokers of a cluster. Example: kafscale brokers -b kafka:9092

    The brokers of KafScale are its front doors. `kafscale status` shows all instances and where their /metrics are.
    """
    from kafscale.client.brokers import describe_brokers

    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = describe_brokers(client)
    columns = ["broker", "host", "port", "rack", "controller"]
    if output is Output.TABLE:
        notice(f"cluster {found.cluster_id}")
        show_rows(columns, found.rows, output)
    else:
        rows = [{"cluster_id": found.cluster_id, **row} for row in found.rows]
        show_rows(["cluster_id", *columns], rows, output)

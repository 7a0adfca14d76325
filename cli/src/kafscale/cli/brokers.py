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
    with kafka(bootstrap_server, data_dir, command_config) as client:
        cluster = client.cluster
    controller = None if cluster.controller is None else cluster.controller.id
    rows = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in sorted(cluster.nodes, key=lambda node: node.id)
    ]
    columns = ["broker", "host", "port", "rack", "controller"]
    if output is Output.TABLE:
        notice(f"cluster {cluster.cluster_id}")
    else:
        columns, rows = ["cluster_id", *columns], [{"cluster_id": cluster.cluster_id, **row} for row in rows]
    show_rows(columns, rows, output)

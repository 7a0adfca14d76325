"""The brokers that a cluster shows to its clients."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.client.admin_client import Client
from kafscale.client.topics import Row


@dataclass(frozen=True, slots=True)
class Brokers:
    """`rows`: broker, host, port, rack, controller."""

    cluster_id: str | None
    rows: list[Row]


def describe_brokers(client: Client) -> Brokers:
    with client.failing("the cluster"):
        found = client.admin.describe_cluster().result()
    controller = found.controller.id if found.controller is not None else None
    rows: list[Row] = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in sorted(found.nodes, key=lambda node: node.id)
    ]
    return Brokers(found.cluster_id, rows)

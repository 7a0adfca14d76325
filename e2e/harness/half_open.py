"""Connections to the gRPC port of a service that say nothing and are closed together. They need no certificate."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from e2e.harness.cluster import Cluster
from e2e.harness.law import nap

CONNECT_TIMEOUT_S: Final = 5.0
HOLD_S: Final = 1.0


def flood(address: str, connections: int, hold_s: float = HOLD_S) -> int:
    """Opens them, holds them, closes them; how many the service accepted before it refused one."""
    host, _, port = address.rpartition(":")
    with ExitStack() as held:
        for number in range(connections):
            try:
                held.enter_context(socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S))
            except (ConnectionError, TimeoutError):
                return number
        nap(hold_s)
    return connections


def flooded(cluster: Cluster, role: str, connections: int) -> Sequence[str]:
    """Floods each instance of a role. A sentence for each process that has ended."""
    before = cluster.pids(role)
    for instance in cluster.inside().instances(role):
        flood(instance.address, connections)
    nap(HOLD_S)  # a process that does not survive it dies while the server cleans up
    gone = set(before) - set(cluster.pids(role))
    return [f"half-open connections: {role}, process {pid}, has ended" for pid in sorted(gone)]

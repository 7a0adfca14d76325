"""Connections to the gRPC port of a service that say nothing and are closed together. They need no certificate."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Final

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

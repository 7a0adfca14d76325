"""Ports for what is started here and now: etcd of `kafscale up`, servers under test."""

import errno
import random
import socket
from typing import Final

_PORTS: Final = range(10_000, 32_768)
_PORT_TRIES: Final = 100


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago.

    Below the ports that kernels give to outgoing connections: one of those could take it before its server does.
    """
    for port in random.sample(_PORTS, _PORT_TRIES):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, f"none of {_PORT_TRIES} ports tried is free on {host}")

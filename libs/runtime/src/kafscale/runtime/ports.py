"""Ports for what is started here and now: etcd of `kafscale up`, servers under test.

A port stays its server's while that is down for a moment. So that nobody takes it then, processes that start servers
beside each other can be told to keep to their shares: KAFSCALE_PORTS_SHARE=1/2 is the odd ones.
"""

import errno
import os
import random
import socket
from typing import Final

_PORTS: Final = range(10_000, 32_768)
_PORT_TRIES: Final = 100
SHARE: Final = "KAFSCALE_PORTS_SHARE"


def our_share(ports: range) -> range:
    """Those of the ports that are this process's to take: all, or every nth of them as the environment says."""
    number, _, of = os.environ.get(SHARE, "0/1").partition("/")
    return ports[int(number) :: int(of)]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago.

    Below the ports that kernels give to outgoing connections: one of those could take it before its server does.
    """
    for port in random.sample(our_share(_PORTS), _PORT_TRIES):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, f"none of {_PORT_TRIES} ports tried is free on {host}")

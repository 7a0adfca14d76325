"""Free ports for servers that start now: the etcd of `kafscale up`, servers under test.

A server keeps its port while it restarts. So that no other process takes the port then, processes that start servers on
one machine can divide the ports: with KAFSCALE_PORTS_SHARE=1/2 a process takes only odd ports.
"""

import errno
import os
import random
import socket
from collections import deque
from typing import Final

_PORTS: Final = range(10_000, 32_768)
_PORT_TRIES: Final = 100
SHARE: Final = "KAFSCALE_PORTS_SHARE"
_lately: Final = deque[int](maxlen=32)
"""What `free_port` has returned lately. A server with two ports asks for both before it binds either."""


def our_share(ports: range) -> range:
    """The ports that this process may take: all, or every nth as KAFSCALE_PORTS_SHARE says."""
    number, _, of = os.environ.get(SHARE, "0/1").partition("/")
    return ports[int(number) :: int(of)]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago, and that no call in this process has returned lately.

    It is below the ports of outgoing connections, which could take it before its server does.
    """
    for port in random.sample(our_share(_PORTS), _PORT_TRIES):
        if port in _lately:
            continue
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                _lately.append(port)
                return port
    raise OSError(errno.EADDRINUSE, f"none of {_PORT_TRIES} ports tried is free on {host}")

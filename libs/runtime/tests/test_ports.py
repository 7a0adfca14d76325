"""A free port is one that its server can have a moment later."""

import errno
import random
import socket
from collections.abc import Sequence

import pytest
from kafscale.runtime.ports import free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_can_be_bound_and_lies_below_those_of_outgoing_connections(host: str) -> None:
    port = free_port(host)
    assert port < 32_768
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        server.bind((host, port))


def test_ports_in_use_are_passed_over_and_running_out_of_them_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        free = free_port()

        def sample(_from: Sequence[int], _count: int) -> list[int]:
            return ports

        monkeypatch.setattr(random, "sample", sample)
        ports = [taken, free]
        assert free_port() == free
        ports = [taken]
        with pytest.raises(OSError, match="none of") as refused:
            free_port()
        assert refused.value.errno == errno.EADDRINUSE

"""A free port is one that its server can have a moment later."""

import errno
import random
import socket
from collections.abc import Sequence

import pytest
from kafscale.runtime.ports import SHARE, free_port, our_share


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_can_be_bound_and_lies_below_those_of_outgoing_connections(host: str) -> None:
    port = free_port(host)
    assert port < 32_768
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        server.bind((host, port))


def test_processes_that_are_told_to_share_take_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = range(10, 20)
    shares = []
    for number in range(3):
        monkeypatch.setenv(SHARE, f"{number}/3")
        shares += our_share(ports)
    assert sorted(shares) == [*ports]
    monkeypatch.setenv(SHARE, "1/2")
    assert {free_port() % 2 for _ in range(20)} == {1}
    monkeypatch.delenv(SHARE)
    assert our_share(ports) == ports


def test_ports_in_use_are_passed_over_and_running_out_of_them_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        given = free_port()
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            free = closed.getsockname()[1]

        def sample(_from: Sequence[int], _count: int) -> list[int]:
            return ports

        monkeypatch.setattr(random, "sample", sample)
        ports = [taken, given, free]
        assert free_port() == free
        ports = [taken]
        with pytest.raises(OSError, match="none of") as refused:
            free_port()
        assert refused.value.errno == errno.EADDRINUSE

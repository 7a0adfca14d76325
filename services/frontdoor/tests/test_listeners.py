"""Listeners as people write them, and sockets that are bound for them."""

import errno
import os
import socket
from typing import Any

import pytest
from kafscale.frontdoor.listeners.listeners import ListenersWrong, address_of, advertised, parse
from kafscale.frontdoor.server import bind_all, bind_for_workers
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.storage.membership.members import Listener
from pydantic import ValidationError

PLAIN = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", (PLAIN,)),
        (" plaintext://127.0.0.1:9092 , ", (PLAIN,)),
        ("A://:1,B://[::1]:2", (Listener(name="A", host="", port=1), Listener(name="B", host="::1", port=2))),
        ("IN-SIDE_1://kafka.example:65535", (Listener(name="IN-SIDE_1", host="kafka.example", port=65535),)),
    ],
)
def test_listeners_are_written_as_in_kafka(text: str, expected: tuple[Listener, ...]) -> None:
    assert parse(text, setting="S") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no listener"),
        ("127.0.0.1:9092", "not NAME://host:port"),
        ("PLAINTEXT://127.0.0.1", "not NAME://host:port"),
        ("PLAINTEXT://h:70000", "not NAME://host:port"),
        ("PLAINTEXT://::1:9092", r"not NAME://host:port; .* needs brackets, as in \[::1\]:9092"),
        ("A://h:1,a://h:2", "twice"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_sentence_that_names_it(text: str, says: str) -> None:
    with pytest.raises(ListenersWrong, match=says) as refused:
        parse(text, setting="KAFSCALE_LISTENERS")
    assert "KAFSCALE_LISTENERS" in str(refused.value)


def test_what_is_not_advertised_otherwise_is_advertised_as_it_listens() -> None:
    listening = (PLAIN, Listener(name="ALL", host="", port=9093), Listener(name="V6", host="::", port=9094))
    shown = advertised(listening, " ", setting="S", own_host="me")
    assert shown == (
        Listener(name="PLAINTEXT", host="127.0.0.1", port=9092),
        Listener(name="ALL", host="me", port=9093),
        Listener(name="V6", host="me", port=9094),
    )


def test_one_load_balancer_can_stand_for_all() -> None:
    shown = advertised((PLAIN,), "PLAINTEXT://lb.example:443", setting="S", own_host="me")
    assert shown == (Listener(name="PLAINTEXT", host="lb.example", port=443),)


def test_an_advertised_port_0_is_the_port_that_was_bound() -> None:
    shown = advertised((PLAIN,), "PLAINTEXT://lb.example:0", setting="S", own_host="me")
    assert shown == (Listener(name="PLAINTEXT", host="lb.example", port=9092),)


@pytest.mark.parametrize(
    ("text", "says"), [("OTHER://h:1", "no listener has that name"), ("PLAINTEXT://:1", "clients can dial")]
)
def test_what_cannot_be_dialled_is_not_advertised(text: str, says: str) -> None:
    with pytest.raises(ListenersWrong, match=says):
        advertised((PLAIN,), text, setting="S", own_host="me")


def test_a_port_that_is_taken_is_named() -> None:
    (door,) = bind_all((Listener(name="A", host="127.0.0.1", port=0),))
    door.socket.listen()
    try:
        assert door.where.port == door.port > 0
        with pytest.raises(ListenersWrong, match=f"listener B cannot have 127.0.0.1:{door.port}"):
            bind_all((Listener(name="B", host="127.0.0.1", port=door.port),))
    finally:
        door.socket.close()


def test_workers_get_the_same_ports_each_by_a_socket_of_its_own() -> None:
    binds = (Listener(name="A", host="127.0.0.1", port=0), Listener(name="B", host="127.0.0.1", port=0))
    of_workers = bind_for_workers(binds, 3)
    try:
        assert len({tuple(door.port for door in doors) for doors in of_workers}) == 1
        assert len({door.socket.fileno() for doors in of_workers for door in doors}) == 6
    finally:
        for doors in of_workers:
            for door in doors:
                door.socket.close()


def test_the_settings_refuse_listeners_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_LISTENERS", "nonsense")
    with pytest.raises(ValidationError, match="KAFSCALE_LISTENERS"):
        FrontdoorSettings()


def test_an_empty_host_takes_clients_of_both_families_by_their_plain_addresses() -> None:
    (door,) = bind_all((Listener(name="A", host="", port=0),))
    door.socket.setblocking(True)
    door.socket.listen()
    try:
        for address in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
            with socket.create_connection((address, door.port), timeout=5) as client:
                accepted, peername = door.socket.accept()
                with accepted:
                    assert address_of(peername) == address
                    assert peername[1] == client.getsockname()[1]
    finally:
        door.socket.close()


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_an_empty_host_is_every_address_of_ipv4(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    class WithoutIPv6(socket.socket):
        def bind(self, address: Any, /) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(error, os.strerror(error))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    (door,) = bind_all((Listener(name="A", host="", port=0),))
    try:
        assert door.socket.getsockname()[0] == "0.0.0.0"
    finally:
        door.socket.close()


def test_a_port_that_is_taken_in_one_family_is_taken_for_an_empty_host() -> None:
    for address in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
        (door,) = bind_all((Listener(name="A", host=address, port=0),))
        door.socket.listen()
        try:
            with pytest.raises(ListenersWrong, match=rf"listener B cannot have \*:{door.port}"):
                bind_all((Listener(name="B", host="", port=door.port),))
        finally:
            door.socket.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True

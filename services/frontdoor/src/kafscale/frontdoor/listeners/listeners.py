"""`listeners` and `advertised.listeners`, written as in Kafka: NAME://host:port, separated by commas.

An empty host listens on every address. Every listener that is advertised must be one that listens, and
a listener that is not advertised is not in Metadata. Several front doors behind one load balancer advertise its
one address: Metadata then shows that address alone.
"""

import re
from typing import Final

from kafscale.runtime.addresses import ANY_HOSTS, brackets_hint
from kafscale.storage.membership.members import Listener

ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})"
)
PORT_MAX: Final = 65_535


class ListenersWrong(ValueError):
    """The setting cannot be used; the sentence says why."""


def parse(text: str, *, setting: str) -> tuple[Listener, ...]:
    """The listeners in their order; each name once."""
    binds: list[Listener] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = ADDRESS.fullmatch(part)
        if found is None or int(found["port"]) > PORT_MAX:
            hint = brackets_hint(part.partition("://")[2])
            raise ListenersWrong(f"{setting}: {part!r} is not NAME://host:port{hint}")
        bind = Listener(name=found["name"].upper(), host=found["host"].strip("[]"), port=int(found["port"]))
        if any(bind.name == other.name for other in binds):
            raise ListenersWrong(f"{setting}: {bind.name} is there twice")
        binds.append(bind)
    if not binds:
        raise ListenersWrong(f"{setting} names no listener")
    return tuple(binds)


def advertised(
    listening: tuple[Listener, ...], text: str, *, setting: str, own_host: str
) -> tuple[Listener, ...]:
    """The addresses for clients. Without a setting: where we listen, by our host's name if that is every address."""
    if not text.strip():
        return tuple(
            Listener(name=bind.name, host=own_host if bind.host in ANY_HOSTS else bind.host, port=bind.port)
            for bind in listening
        )
    shown = parse(text, setting=setting)
    ports = {bind.name: bind.port for bind in listening}
    for bind in shown:
        if bind.name not in ports:
            raise ListenersWrong(f"{setting}: {bind.name} is advertised, but no listener has that name")
        if bind.host in ANY_HOSTS:
            raise ListenersWrong(f"{setting}: {bind.name} needs a host that clients can dial")
    return tuple(
        Listener(name=bind.name, host=bind.host, port=bind.port or ports[bind.name]) for bind in shown
    )


def address_of(peername: object) -> str:
    """The address in what a socket says of its peer; empty if the peer has left already."""
    return plain_address(str(peername[0])) if isinstance(peername, tuple) and peername else ""


def peer_text(peername: object) -> str:
    """Address and port, for logs."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername)


def plain_address(address: str) -> str:
    """`1.2.3.4` for `::ffff:1.2.3.4`, as which a socket of both families shows it. Other addresses as they are."""
    return address.removeprefix("::ffff:") if "." in address else address

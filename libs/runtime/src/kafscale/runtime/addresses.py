"""Parses and checks addresses in settings. Pure. A mistake is a ValueError that names the expected form."""

from ipaddress import IPv6Address
from typing import Final
from urllib.parse import parse_qs, urlsplit

PORT_MAX = 65_535
ANY_HOSTS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  (recognised, not bound)
"""Hosts that listen on every address. A client cannot connect to them."""


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port`; an IPv6 host is in brackets."""
    host, separator, port = address.rpartition(":")
    hint = brackets_hint(address)
    if hint or not separator or not host or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{address!r} is not host:port{hint or ', such as 127.0.0.1:9092'}")
    return host.strip("[]"), int(port)


def brackets_hint(address: str) -> str:
    """The end of an error message, if this is an IPv6 address without brackets; otherwise empty.

    The end of `::1:9193` is a port or a part of the address, so no reader may guess.
    """
    host, _, port = address.rpartition(":")
    if port.isdigit() and _is_ipv6(host):
        return f"; an IPv6 address needs brackets, as in [{host}]:{port}"
    return f"; an IPv6 address needs brackets, as in [{address}]:9092" if _is_ipv6(address) else ""


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_url(url: str) -> str:
    """`http://host:port`, `https://host:port` or `host:port`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    hint = brackets_hint(parts.netloc)
    if hint or parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"{url!r} is not http://host:port or https://host:port{hint}")
    if parts.port == 0:
        raise ValueError(f"{url!r} has port 0, which no client can reach")
    return url


def check_etcd_url(url: str) -> str:
    """As `check_url`, or `unix:///path` of a socket."""
    if url.startswith("unix:///"):
        return url
    try:
        return check_url(url)
    except ValueError as mistake:
        raise ValueError(f"{mistake}, and not unix:///path either") from None


def check_redis_url(url: str) -> str:
    """`redis://`, `rediss://` or `unix://`. The error does not contain the URL, which may hold a password."""
    parts = urlsplit(url)
    try:
        readable = parts.port != 0
    except ValueError:
        readable = False
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if parts.scheme not in ("redis", "rediss", "unix") or not place or not readable:
        raise ValueError(
            "not redis://host:port/db, rediss://host:port/db or unix:///path; a user:password@ may precede the host, "
            "with special characters percent-encoded"
        )
    return url


def has_password(url: str) -> bool:
    """Whether a URL of redis has one, before the host or as an option."""
    parts = urlsplit(url)
    return parts.password is not None or "password" in parse_qs(parts.query)

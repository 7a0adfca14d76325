"""Principals and client hosts, in the text form in which ACLs name them.

A principal is `type:name`. The type ends at the first colon, so the name may contain colons. Two principals are equal
if their text is equal. A host is the client's address as Java's `InetAddress.getHostAddress` prints it, because ACLs
that were made for Apache Kafka contain that form.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NewType

Principal = NewType("Principal", str)
"""`User:alice`. Made by `user` or `parse_principal`."""

USER_TYPE: Final = "User"
ANONYMOUS: Final = Principal("User:ANONYMOUS")
"""The principal of a connection without authentication (Kafka's KafkaPrincipal.ANONYMOUS)."""
ANY_PRINCIPAL: Final = Principal("User:*")
"""In an ACL: every principal, of any type (StandardAuthorizerData.WILDCARD_PRINCIPAL)."""
ANY_HOST: Final = "*"
PEERS_KNOWN: Final = 4_096
"""Addresses whose form in ACLs is remembered, so that it is not computed with each request."""


class PrincipalWrong(ValueError):
    """The text has no form `type:name`. The message is Kafka's."""


def user(name: str) -> Principal:
    """The principal of a SASL user or of a certificate's name."""
    return Principal(f"{USER_TYPE}:{name}")


def name_of(principal: Principal) -> str:
    """Without the type: what quotas name (KafkaPrincipal.getName)."""
    return principal.partition(":")[2]


def parse_principal(text: str) -> Principal:
    """Raises PrincipalWrong for a text without a colon (SecurityUtils.parseKafkaPrincipal)."""
    if ":" not in text:
        raise PrincipalWrong(f"expected a string in format principalType:principalName but got {text}")
    return Principal(text)


def parse_super_users(text: str) -> frozenset[Principal]:
    """The value of `super.users`: principals separated by semicolons, because names of certificates contain commas.

    Raises PrincipalWrong (StandardAuthorizer.getConfiguredSuperUsers).
    """
    return frozenset(parse_principal(part) for part in map(str.strip, text.split(";")) if part)


def java_host(address: str) -> str:
    """The client's address as Java prints it: IPv6 without `::` and without leading zeros, scope after `%`.

    An IPv4-mapped IPv6 address is printed as IPv4, because Java makes an Inet4Address of it. `address` is what
    `socket.getpeername` returns. Raises ValueError for a text that is not an IP address.
    """
    plain, percent, scope = address.partition("%")
    parsed: IPv4Address | IPv6Address = ip_address(plain)
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return f"{groups}{percent}{scope}"


@lru_cache(maxsize=PEERS_KNOWN)
def acl_host(address: str) -> str:
    """As `java_host`. A text that is no IP address stays as it is: only an ACL for every host matches it."""
    try:
        return java_host(address)
    except ValueError:
        return address


def peer_host(peer: str) -> str:
    """The host of a client's `address:port`, in the form in which ACLs name it."""
    return acl_host(peer.rpartition(":")[0])

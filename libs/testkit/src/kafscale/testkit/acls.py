"""ACLs and authorizers for tests, and the variants in which every API is tested.

A right is written as `TOPIC orders READ`: the type, the name and the operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import Principal
from kafscale.access.rules import Need, Right

ALICE: Final = Principal("User:alice")
HOST: Final = "127.0.0.1"
PEER: Final = f"{HOST}:5"
"""The client of the tests, as the request's frame names it."""

VARIANTS: Final = {
    "no rule": False,
    "allow": True,
    "allow all": True,
    "deny over allow": False,
    "deny any over allow": False,
    "prefixed": True,
    "any name": True,
    "everyone": True,
    "this host": True,
    "another host": False,
    "another principal": False,
    "super user": True,
}
"""Ways to have a right or to lack it, and which of both it is."""


def acl(
    text: str = "TOPIC:LITERAL:orders", *, principal: str = ALICE, host: str = "*", deny: bool = False
) -> AclBinding:
    """`acl("TOPIC:PREFIXED:or READ")`: a pattern and an operation, which is ALL if it is not given."""
    pattern, _, operation = text.partition(" ")
    resource_type, pattern_type, name = pattern.split(":", 2)
    return AclBinding(
        resource_type=ResourceType[resource_type],
        pattern_type=PatternType[pattern_type],
        resource_name=name,
        principal=Principal(principal),
        host=host,
        operation=Operation[operation or "ALL"],
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def authorizer(*acls: AclBinding, super_users: Iterable[Principal] = ()) -> Authorizer:
    return Authorizer(AclIndex(acls), super_users=super_users)


def allowing(*rights: str) -> Authorizer:
    """Alice has these rights and no others."""
    return authorizer(*(_literal(right) for right in rights))


def right_of(need: Need, name: str = "") -> str:
    """The right that meets the need; of several, the one that is asked last."""
    return text_of(need.any_of[-1], name)


def text_of(right: Right, name: str = "") -> str:
    shown = "kafka-cluster" if right.resource_type is ResourceType.CLUSTER else name
    return f"{right.resource_type.name} {shown} {right.operation.name}"


def variant(name: str, right: str, *others: str) -> Authorizer:
    """The authorizer of a variant of a right. Alice has the other rights in every variant."""
    resource_type, resource, operation = right.split(" ")
    literal = f"{resource_type}:LITERAL:{resource}"
    allow = acl(f"{literal} {operation}")
    acls = {
        "no rule": (acl(f"{literal}-other {operation}"),),
        "allow": (allow,),
        "allow all": (acl(literal),),
        "deny over allow": (allow, acl(f"{literal} {operation}", deny=True)),
        "deny any over allow": (allow, acl(f"{resource_type}:LITERAL:* {operation}", deny=True)),
        "prefixed": (acl(f"{resource_type}:PREFIXED:{resource[:1]} {operation}"),),
        "any name": (acl(f"{resource_type}:LITERAL:* {operation}"),),
        "everyone": (acl(f"{literal} {operation}", principal="User:*"),),
        "this host": (acl(f"{literal} {operation}", host=HOST),),
        "another host": (acl(f"{literal} {operation}", host="127.0.0.2"),),
        "another principal": (acl(f"{literal} {operation}", principal="User:bob"),),
        "super user": (),
    }[name]
    super_users = [ALICE] if name == "super user" else []
    return authorizer(*acls, *map(_literal, others), super_users=super_users)


def _literal(right: str) -> AclBinding:
    resource_type, name, operation = right.split(" ")
    return acl(f"{resource_type}:LITERAL:{name} {operation}")

"""What a login may see, by the operations that the front door says it may do (KIP-430). Pure.

Law: a right that is not known is not given. Operations are kept for KEPT_S, so a right that is taken away ends then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, AclBinding, Operation, Permission, ResourceType
from kafscale.access.acl_index import AclIndex, bit, mask_of
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import ANY_HOST, ANY_PRINCIPAL, Principal

KEPT_S: Final = 15.0
KEPT_MAX: Final = 50_000

Resource = tuple[ResourceType, str]
"""Kind and name. The cluster's name is CLUSTER_NAME."""


class Admits(Enum):
    """Whom a route admits before its handler runs."""

    ANYBODY = "anybody"
    """Also somebody without a login. Such a route shows nothing of the cluster."""
    LOGIN = "a login"
    """The handler asks the front door with the login's own client, which answers, refuses, or leaves out what this
    login may not see. A handler that reads etcd or the store itself cuts its rows by `Call.seen`."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The operation on the resource whose name is the path parameter `parameter`; the cluster has none."""

    operation: Operation
    kind: ResourceType
    parameter: str | None = None

    def resource(self, path: Mapping[str, str]) -> Resource:
        return self.kind, CLUSTER_NAME if self.parameter is None else path[self.parameter]

    def __str__(self) -> str:
        return f"{self.operation.name} on the {self.kind.name.lower()}"


def on_topic(operation: Operation) -> Needs:
    """Of the path parameter `topic`."""
    return Needs(operation, ResourceType.TOPIC, "topic")


def on_group(operation: Operation) -> Needs:
    """Of the path parameter `group`."""
    return Needs(operation, ResourceType.GROUP, "group")


def on_cluster(operation: Operation) -> Needs:
    return Needs(operation, ResourceType.CLUSTER)


class KnownRights:
    """What the front door said about one login, and when."""

    def __init__(self) -> None:
        self._known: dict[Resource, tuple[frozenset[Operation], float]] = {}

    def learn(self, said: Mapping[Resource, frozenset[Operation]], now_s: float) -> None:
        for resource, operations in said.items():
            self._known.pop(resource, None)
            self._known[resource] = operations, now_s
        while len(self._known) > KEPT_MAX:
            self._known.pop(next(iter(self._known)))

    def unknown(self, wanted: Iterable[Resource], now_s: float) -> list[Resource]:
        """Those to ask about."""
        return [each for each in dict.fromkeys(wanted) if not self._fresh(each, now_s)]

    def allows(self, resource: Resource, operation: Operation, now_s: float) -> bool:
        return operation in self.operations(resource, now_s)

    def operations(self, resource: Resource, now_s: float) -> frozenset[Operation]:
        return self._known[resource][0] if self._fresh(resource, now_s) else frozenset()

    def _fresh(self, resource: Resource, now_s: float) -> bool:
        return resource in self._known and now_s - self._known[resource][1] < KEPT_S

    def forget(self) -> None:
        """Before SQL and search, which read much with one answer."""
        self._known.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is known of a login that may DESCRIBE the cluster. `principal` None: its name is not known. `topics`: those
    in its own list."""

    principal: Principal | None
    acls: Collection[AclBinding]
    cluster: frozenset[Operation]
    topics: Collection[str]


def describable_groups(names: Iterable[str], held: Held) -> list[str]:
    """The groups that this login may perhaps DESCRIBE, so that no page asks for another (law S4). The front door still
    decides about each. ListGroups lists every group for a login that may DESCRIBE the cluster, and says no more.

    ACLs decide if they explain what the login sees of the cluster and of topics. If they do not, what else gives rights
    is added: `allow.everyone.if.no.acl.found`, and then `super.users`.
    """
    index = AclIndex(_at_most(held.acls, held.principal))
    who = held.principal or ANY_PRINCIPAL
    for everyone in (False, True):
        found = Authorizer(index, allow_everyone_if_no_acl_found=everyone)
        seen = mask_of(held.cluster) & ~found.allowed(who, ANY_HOST, ResourceType.CLUSTER, CLUSTER_NAME)
        if not seen and all(_describes(found, who, ResourceType.TOPIC, name) for name in held.topics):
            return [name for name in names if _describes(found, who, ResourceType.GROUP, name)]
    return list(names)


def _describes(authorizer: Authorizer, who: Principal, kind: ResourceType, name: str) -> bool:
    return bool(authorizer.allowed(who, ANY_HOST, kind, name) & bit(Operation.DESCRIBE))


def _at_most(acls: Iterable[AclBinding], principal: Principal | None) -> Iterator[AclBinding]:
    """ACLs that give at least the rights of these ACLs to the principal, whatever its name, if that is not known, and
    its host, which only the front door knows."""
    for acl in acls:
        if acl.permission is Permission.ALLOW:
            yield replace(acl, host=ANY_HOST, principal=acl.principal if principal else ANY_PRINCIPAL)
        elif acl.host == ANY_HOST:
            yield acl

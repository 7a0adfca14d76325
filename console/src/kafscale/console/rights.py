"""What a login may see, by the operations that the front door says it may do (KIP-430). Pure.

Law: a right that is not known is not given. Operations are kept for KEPT_S, so a right that is taken away ends then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, Operation, ResourceType

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
        return self._fresh(resource, now_s) and operation in self._known[resource][0]

    def _fresh(self, resource: Resource, now_s: float) -> bool:
        return resource in self._known and now_s - self._known[resource][1] < KEPT_S

    def forget(self) -> None:
        """Before SQL and search, which read much with one answer."""
        self._known.clear()

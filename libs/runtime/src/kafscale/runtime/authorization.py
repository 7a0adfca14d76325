"""Asks the authorizer for the requests of one process, and reports what it denied.

Laws: without an authorizer nothing is asked, and every question costs one call. With one, a handler asks once for each
name of a request, before it looks whether the name exists. A denial is counted and written to the audit log, unless the
answer only lacks what is denied: a list of a thousand names would be a thousand denials, as in Kafka (`logIfDenied`).
A process whose handlers do not ask what `kafscale.access.rules` says does not start (`enforced`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, PatternType, ResourceType
from kafscale.access.authorizer import SUPPORTED_MASKS, Authorizer, Rights, Verdict
from kafscale.access.principals import ANONYMOUS, Principal, peer_host
from kafscale.access.rules import Denial, Need, Side, check_enforced
from kafscale.runtime.audit import AuditLog
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.request_meta import RequestMeta
from kafscale.runtime.stream.handlers import exported
from kafscale.wire.apis import api_label

NO_NAMES: Final[frozenset[str]] = frozenset()
UNREPORTED: Final = frozenset({Denial.LEFT_OUT, Denial.HIDES_CONFIGS})
"""The answer lacks what is denied, and has no error for it."""
CHOSEN: Final = frozenset({"resource"})
"""The fields of the audit log whose values clients choose."""


class Asker:
    """The questions of one request. This one belongs to a process without an authorizer: everything is allowed."""

    __slots__ = ()

    def allows(self, need: Need, name: str = "") -> bool:
        """True if the need is met. `name`: the topic, group or transactional id; not used for the cluster."""
        return True

    def denied(self, need: Need, names: Iterable[str]) -> frozenset[str]:
        """The names for which the need is not met."""
        return NO_NAMES

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of an answer's `authorized_operations` (KIP-430)."""
        return SUPPORTED_MASKS[resource_type]


EVERYTHING: Final = Asker()


class RightsAsker(Asker):
    """The questions of one request of a principal at a host."""

    __slots__ = ("_api_key", "_authorization", "_listener", "_rights")

    def __init__(
        self, authorization: Authorization, rights: Rights, listener: str | None, api_key: int
    ) -> None:
        self._authorization = authorization
        self._rights = rights
        self._listener = listener
        self._api_key = api_key

    def allows(self, need: Need, name: str = "") -> bool:
        if need.met(self._rights, name):
            return True
        self._report(need, name)
        return False

    def denied(self, need: Need, names: Iterable[str]) -> frozenset[str]:
        rights, met = self._rights, need.met
        found = [name for name in dict.fromkeys(names) if not met(rights, name)]
        for name in found:
            self._report(need, name)
        return frozenset(found) if found else NO_NAMES

    def _report(self, need: Need, name: str) -> None:
        if need.denial not in UNREPORTED:
            self._authorization.report(self._rights, self._listener, self._api_key, need, name)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        return self._rights.authorized_operations(resource_type, name)


class Authorization:
    """What all requests of a process share. `authorizer` is None if the process has none."""

    def __init__(self, authorizer: Authorizer | None, metrics: Metrics) -> None:
        self.authorizer = authorizer
        self._denials = metrics.counters("denials_total")
        self._audit = AuditLog()

    def of(self, meta: RequestMeta) -> Asker:
        """For a request that a front door has sent, which names its principal and its client's address."""
        authorizer = self.authorizer
        if authorizer is None:
            return EVERYTHING
        principal = ANONYMOUS if meta.principal is None else Principal(meta.principal)
        rights = authorizer.rights(principal, peer_host(meta.peer or ""))
        return RightsAsker(self, rights, meta.listener, meta.api_key)

    def report(self, rights: Rights, listener: str | None, api_key: int, need: Need, name: str) -> None:
        """Counts a denial and writes it to the audit log."""
        api = api_label(api_key)
        self._denials.labels(api).inc()
        # The last right is the one that Kafka logs: it asks those before it silently.
        right = next(right for right in reversed(need.any_of) if not right.any_name)
        resource = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else name
        verdict = rights.explain(right.operation, right.resource_type, resource)
        fields = {
            "principal": rights.principal,
            "host": rights.host,
            "listener": listener,
            "api": api,
            "operation": right.operation.name,
            "resource": f"{right.resource_type.name}:{PatternType.LITERAL.name}:{resource}",
            "rule": rule_text(verdict),
        }
        self._audit.write("info", "denied", fields, chosen=CHOSEN)

    def close(self) -> None:
        """Writes the lines of the audit log that wait to be summed up."""
        self._audit.close()


def rule_text(verdict: Verdict) -> str:
    """What has decided. An ACL is shown as `TOPIC:PREFIXED:or User:alice * DENY WRITE`."""
    acl = verdict.acl
    if acl is None:
        return verdict.rule.value
    pattern = f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}"
    entry = f"{acl.principal} {acl.host} {acl.permission.name} {acl.operation.name}"
    return f"{verdict.rule.value}({pattern} {entry})"


def enforced(handlers: ModuleType, served: Iterable[int]) -> None:
    """Raises NotEnforced if a service's handlers do not ask what the rules say.

    A module of `handlers` exports the needs that it asks as `NEEDS`.
    """
    asked: Mapping[int, tuple[Need, ...]] = exported(handlers, "NEEDS", tuple)
    check_enforced(served, asked, Side.SERVICE)

"""Asks the authorizer for the requests of one process, and reports what it denied.

Laws: without an authorizer nothing is asked, and every question costs one call. With one, a handler asks once for each
name of a request, before it looks whether the name exists. A denial is counted and written to the audit log, unless the
answer only lacks what is denied: a list of a thousand names would be a thousand denials, as in Kafka (`logIfDenied`).
At log level debug, what is allowed has lines too. An alteration of ACLs, users or quotas has a line with its outcome.
A process whose handlers do not ask what `kafscale.access.rules` says does not start (`enforced`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, AclBinding, PatternType, ResourceType
from kafscale.access.authorizer import SUPPORTED_MASKS, Authorizer, Rights, Verdict
from kafscale.access.principals import ANONYMOUS, Principal, peer_host
from kafscale.access.rules import Denial, Need, Right, Side, check_enforced
from kafscale.runtime.audit import AuditLog
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.apis import exported
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import api_label

NO_NAMES: Final[frozenset[str]] = frozenset()
UNREPORTED: Final = frozenset({Denial.LEFT_OUT, Denial.HIDES_CONFIGS})
"""The answer lacks what is denied, and has no error for it."""
CHOSEN: Final = frozenset({"resource"})
"""The fields of the audit log whose values clients choose."""
LINES_AT_ONCE: Final = 100


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


class GrantingAsker(RightsAsker):
    """It also reports what is allowed."""

    __slots__ = ()

    def allows(self, need: Need, name: str = "") -> bool:
        return super().allows(need, name) and self._granted(need, name)

    def denied(self, need: Need, names: Iterable[str]) -> frozenset[str]:
        asked = list(dict.fromkeys(names))
        found = super().denied(need, asked)
        for name in asked:
            if name not in found:
                self._granted(need, name)
        return found

    def _granted(self, need: Need, name: str) -> bool:
        """True."""
        if need.denial in UNREPORTED:
            return True
        self._authorization.report_grant(self._rights, self._listener, self._api_key, need, name)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """One alteration, for the audit log: what was done to what, and Kafka's name of the outcome."""

    change: str
    """`create ACL`"""
    target: str
    outcome: str


class Authorization:
    """What all requests of a process share. `authorizer` is None if the process has none. `grants`: report them too."""

    def __init__(self, authorizer: Authorizer | None, metrics: Metrics, *, grants: bool = False) -> None:
        self.authorizer = authorizer
        self._denials = metrics.counters("denials_total")
        self._audit = AuditLog()
        self._grants = AuditLog()
        """Sums of its own, so that grants take no place of denials."""
        self._asker = GrantingAsker if grants else RightsAsker

    @property
    def generation(self) -> int:
        """Grows when the ACLs change."""
        return 0 if self.authorizer is None else self.authorizer.acls.generation

    def of(self, meta: RequestMeta) -> Asker:
        """For a request that a front door has sent, which names its principal and its client's address."""
        authorizer = self.authorizer
        if authorizer is None:
            return EVERYTHING
        principal = ANONYMOUS if meta.principal is None else Principal(meta.principal)
        rights = authorizer.rights(principal, peer_host(meta.peer or ""))
        return self.asker(rights, meta.listener, meta.api_key)

    def asker(self, rights: Rights, listener: str | None, api_key: int) -> Asker:
        return self._asker(self, rights, listener, api_key)

    async def altered(self, meta: RequestMeta, done: Iterable[Altered]) -> None:
        """Writes a line for each alteration. It lets other tasks run between them."""
        for number, each in enumerate(done, 1):
            fields = {
                "principal": meta.principal or ANONYMOUS,
                "host": peer_host(meta.peer or ""),
                "listener": meta.listener,
                "api": api_label(meta.api_key),
                "change": each.change,
                "target": each.target,
                "outcome": each.outcome,
            }
            self._audit.write_always("info", "altered", fields)
            if number % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def report(self, rights: Rights, listener: str | None, api_key: int, need: Need, name: str) -> None:
        """Counts a denial and writes it to the audit log."""
        self._denials.labels(api_label(api_key)).inc()
        # The last right is the one that Kafka logs: it asks those before it silently.
        right = next(right for right in reversed(need.any_of) if not right.any_name)
        self._audit.write("info", "denied", _fields(rights, listener, api_key, right, name), chosen=CHOSEN)

    def report_grant(self, rights: Rights, listener: str | None, api_key: int, need: Need, name: str) -> None:
        """Writes to the audit log by which right the need is met."""
        right = next(right for right in need.any_of if right.held(rights, name))
        self._grants.write("debug", "granted", _fields(rights, listener, api_key, right, name), chosen=CHOSEN)

    def close(self) -> None:
        """Writes the lines of the audit log that wait to be summed up."""
        self._audit.close()
        self._grants.close()


def _fields(rights: Rights, listener: str | None, api_key: int, right: Right, name: str) -> dict[str, object]:
    """Of a decision. A right on any name has no rule: several ACLs together may give it."""
    resource = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else name
    pattern = PatternType.ANY if right.any_name else PatternType.LITERAL
    rule = None
    if not right.any_name:
        rule = rule_text(rights.explain(right.operation, right.resource_type, resource))
    return {
        "principal": rights.principal,
        "host": rights.host,
        "listener": listener,
        "api": api_label(api_key),
        "operation": right.operation.name,
        "resource": f"{right.resource_type.name}:{pattern.name}:{resource}",
        "rule": rule,
    }


def rule_text(verdict: Verdict) -> str:
    """What has decided. An ACL is shown as by `acl_text`."""
    if verdict.acl is None:
        return verdict.rule.value
    return f"{verdict.rule.value}({acl_text(verdict.acl)})"


def acl_text(acl: AclBinding) -> str:
    """`TOPIC:PREFIXED:or User:alice * DENY WRITE`."""
    pattern = f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}"
    return f"{pattern} {acl.principal} {acl.host} {acl.permission.name} {acl.operation.name}"


def enforced(handlers: ModuleType, served: Iterable[int]) -> None:
    """Raises NotEnforced if a service's handlers do not ask what the rules say.

    A module of `handlers` exports the needs that it asks as `NEEDS`.
    """
    asked: Mapping[int, tuple[Need, ...]] = exported(handlers, "NEEDS", tuple)
    check_enforced(served, asked, Side.SERVICE)

"""Whether a principal at a host may do an operation on a resource: Apache Kafka's StandardAuthorizer.

The order decides: a super user is allowed; a matching DENY denies; a matching ALLOW allows; a resource to which no ACL
applies, of any principal, gets the default (`allow.everyone.if.no.acl.found`); everything else is denied. A pattern
applies if it is the resource's LITERAL name, the LITERAL `*`, or a PREFIXED start of the name. An ACL matches if it
names the principal or `User:*`, the host or `*`, and the operation or ALL. ALLOW of some operations allows others too
(`acl_index.IMPLIED`).

Some differences from Kafka 4.3.1 are on purpose. There, an ACL on `*` does not apply to a longer name that begins with
`*`, such as the group `*a`: the search takes the pattern for a shorter name. A DENY on `*` would miss such a group. For
a name that begins with a character before `*`, the search may never end or throw (StandardAuthorizerData.checkSection).
A client whose name is `*` is an exception in matchingPrincipals. Here the rules above hold for these names too.

A connection keeps its `Rights` and asks them. They remember for each resource the operations that are allowed, all in
one mask, until the generation of the ACLs moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafscale.access.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD_RESOURCE,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.acl_index import EVERY_OPERATION, AclIndex, PatternKey, bit, entries, mask_of
from kafscale.access.principals import Principal

RIGHTS_MAX: Final = 10_000
"""Pairs of principal and host that the authorizer remembers. A connection that has its Rights keeps them."""
NAMES_MAX: Final = 4_096
"""Resources that one Rights object remembers."""
NAME_CHARS_MAX: Final = 249
"""Longer names are not remembered, so that a client cannot fill memory with names. No topic has a longer name."""
SUPPORTED_MASKS: Final = {type_: mask_of(operations) for type_, operations in SUPPORTED_OPERATIONS.items()}
_PROBE_NAME: Final = "hardcode"
"""The name that Kafka asks for in authorizeByResourceType, so that super users and the default are seen first."""


class Rule(Enum):
    """What has decided, in the words of Kafka's audit log."""

    SUPER_USER = "SuperUser"
    MATCHING_ACL = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision with its reason, for the audit log. `acl` is set for MATCHING_ACL: one of the ACLs that match."""

    allowed: bool
    rule: Rule
    acl: AclBinding | None = None


class Authorizer:
    """The ACLs and the settings that decide. A change of `acls` is seen by the next question."""

    def __init__(
        self,
        acls: AclIndex,
        *,
        super_users: Iterable[Principal] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._default = EVERY_OPERATION if allow_everyone_if_no_acl_found else 0
        self._rights: dict[tuple[Principal, str], Rights] = {}

    def __len__(self) -> int:
        """The number of Rights that are remembered."""
        return len(self._rights)

    def rights(self, principal: Principal, host: str) -> Rights:
        """The rights of the principal at the host. `host` is in the form of `java_host`."""
        key = (principal, host)
        found = self._rights.get(key)
        if found is None:
            if len(self._rights) >= RIGHTS_MAX:
                del self._rights[next(iter(self._rights))]
            found = self._rights[key] = Rights(self, principal, host)
        return found

    def allowed(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """The mask of the operations on the resource that are allowed."""
        if principal in self._super_users:
            return EVERY_OPERATION
        allow = deny = 0
        any_acl = False
        for pattern in self.acls.patterns(resource_type, name):
            any_acl = True
            for entry in entries(pattern, principal, host):
                allow |= entry.allow
                deny |= entry.deny
        return allow & ~deny if any_acl else self._default

    def explain(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Verdict:
        """The same decision as `allowed`, with the rule. Slower: for what is audited."""
        if principal in self._super_users:
            return Verdict(allowed=True, rule=Rule.SUPER_USER)
        allowing: AclBinding | None = None
        any_acl = False
        for pattern in self.acls.patterns(resource_type, name):
            any_acl = True
            for entry in entries(pattern, principal, host):
                if entry.deny & bit(operation):
                    acl = _deciding(entry.acls, operation, Permission.DENY)
                    return Verdict(allowed=False, rule=Rule.MATCHING_ACL, acl=acl)
                if entry.allow & bit(operation):
                    allowing = _deciding(entry.acls, operation, Permission.ALLOW)
        if allowing is not None:
            return Verdict(allowed=True, rule=Rule.MATCHING_ACL, acl=allowing)
        if not any_acl and self._default:
            return Verdict(allowed=True, rule=Rule.DEFAULT_ALLOW)
        return Verdict(allowed=False, rule=Rule.DEFAULT_DENY)

    def allowed_on_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """True if the operation is allowed on some resource of the type, which need not exist.

        This is the default method Authorizer.authorizeByResourceType, which StandardAuthorizer keeps: only ACLs of the
        operation itself and of ALL count, and an ALLOW counts unless a DENY covers it whole. These cover it: `*`, a
        prefix of its name, and, for a LITERAL name, the same name.
        """
        if self.allowed(principal, host, resource_type, _PROBE_NAME) & bit(operation):
            return True
        allow: set[PatternKey] = set()
        deny: set[PatternKey] = set()
        for key, entry in self.acls.patterns_of(resource_type, principal, host):
            if entry.allow_named & bit(operation):
                allow.add(key)
            if entry.deny & bit(operation):
                deny.add(key)
        every = (PatternType.LITERAL, WILDCARD_RESOURCE)
        if every in deny:
            return False
        if every in allow:
            # Kafka does not look at the denied prefixes here.
            return True
        deny_lengths = {len(name) for type_, name in deny if type_ is PatternType.PREFIXED}
        return any(not _covered(key, deny, deny_lengths) for key in allow)


def _covered(key: PatternKey, deny: set[PatternKey], deny_lengths: set[int]) -> bool:
    """True if a denied pattern covers the allowed pattern. A denied literal name covers no prefixed pattern."""
    pattern_type, name = key
    if pattern_type is PatternType.LITERAL and key in deny:
        return True
    return any((PatternType.PREFIXED, name[:n]) in deny for n in deny_lengths if n <= len(name))


def _deciding(acls: Iterable[AclBinding], operation: Operation, permission: Permission) -> AclBinding:
    """The first ACL of an entry that gives the permission, the one that names the operation before others."""
    candidates = [acl for acl in acls if acl.permission is permission]
    exact = [acl for acl in candidates if acl.operation in (operation, Operation.ALL)]
    return next(iter(exact or candidates))


class Rights:
    """What one principal at one host may do. It remembers the answers until the ACLs change."""

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._acls = authorizer.acls
        self._generation = authorizer.acls.generation
        self._names: dict[tuple[ResourceType, str], int] = {}
        self._any: dict[tuple[Operation, ResourceType], bool] = {}

    def __len__(self) -> int:
        """The number of resources that are remembered."""
        return len(self._names)

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Kafka's `authorize`. For the cluster, `name` is `kafka-cluster`."""
        if self._generation == self._acls.generation:
            mask = self._names.get((resource_type, name))
            if mask is not None:
                return mask >> operation & 1 == 1
        return self._mask(resource_type, name) >> operation & 1 == 1

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Kafka's `authorizeByResourceType`: InitProducerId asks for WRITE on any topic."""
        self._drop_old()
        found = self._any.get((operation, resource_type))
        if found is None:
            found = self._authorizer.allowed_on_any(self.principal, self.host, operation, resource_type)
            self._any[operation, resource_type] = found
        return found

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of an answer's `authorized_operations`: bit n is the operation of code n (KIP-430).

        It is 0 for a cluster that may not be described.
        """
        mask = self._mask(resource_type, name)
        if resource_type is ResourceType.CLUSTER and not mask & bit(Operation.DESCRIBE):
            return 0
        return mask & SUPPORTED_MASKS[resource_type]

    def explain(self, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        """The verdict with its rule, for the audit log."""
        return self._authorizer.explain(self.principal, self.host, operation, resource_type, name)

    def _mask(self, resource_type: ResourceType, name: str) -> int:
        self._drop_old()
        key = (resource_type, name)
        mask = self._names.get(key)
        if mask is None:
            mask = self._authorizer.allowed(self.principal, self.host, resource_type, name)
            if len(name) <= NAME_CHARS_MAX:
                if len(self._names) >= NAMES_MAX:
                    del self._names[next(iter(self._names))]
                self._names[key] = mask
        return mask

    def _drop_old(self) -> None:
        if self._generation != self._acls.generation:
            self._names.clear()
            self._any.clear()
            self._generation = self._acls.generation

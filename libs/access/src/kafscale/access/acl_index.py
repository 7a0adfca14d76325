"""ACLs, indexed so that the cost of a lookup depends on the name of the resource and not on the number of ACLs.

For each resource type there are two tables by pattern name: LITERAL (which contains `*`) and PREFIXED. A name is
looked up in the first as itself and as `*`, and in the second once for each length that a prefixed pattern has. Below
a pattern the ACLs are found by principal and by host, and are kept as bit masks of operations. A principal and a host
meet at most four such entries in each pattern, because an ACL names both, either, or neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kafscale.access.acl import (
    WILDCARD_RESOURCE,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.principals import ANY_HOST, ANY_PRINCIPAL, Principal


def bit(operation: Operation) -> int:
    """The operation's bit in a mask, and in the protocol's `authorized_operations`."""
    return 1 << operation


def mask_of(operations: Iterable[Operation]) -> int:
    return sum(map(bit, frozenset(operations)))


EVERY_OPERATION: Final = mask_of(set(Operation) - {Operation.UNKNOWN, Operation.ANY})
IMPLIED: Final = {
    Operation.READ: bit(Operation.DESCRIBE),
    Operation.WRITE: bit(Operation.DESCRIBE),
    Operation.DELETE: bit(Operation.DESCRIBE),
    Operation.ALTER: bit(Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: bit(Operation.DESCRIBE_CONFIGS),
}
"""What ALLOW of an operation allows in addition. DENY implies nothing (StandardAuthorizerData.findResult)."""


def _named(acl: AclBinding) -> int:
    """The operations that the ACL names: one, or all."""
    return EVERY_OPERATION if acl.operation is Operation.ALL else bit(acl.operation)


@dataclass(frozen=True, slots=True)
class Entry:
    """The ACLs of one pattern, principal and host: at most two for each operation."""

    acls: tuple[AclBinding, ...]
    allow: int = field(init=False)
    """Mask of the operations that are allowed, with those that are implied."""
    allow_named: int = field(init=False)
    """The same without those that are implied."""
    deny: int = field(init=False)

    def __post_init__(self) -> None:
        allow = allow_named = deny = 0
        for acl in self.acls:
            if acl.permission is Permission.DENY:
                deny |= _named(acl)
            else:
                allow_named |= _named(acl)
                allow |= _named(acl) | IMPLIED.get(acl.operation, 0)
        object.__setattr__(self, "allow", allow)
        object.__setattr__(self, "allow_named", allow_named)
        object.__setattr__(self, "deny", deny)


_NONE: Final = Entry(())
Pattern = dict[Principal, dict[str, Entry]]
"""The entries of one resource pattern, by principal and host."""
PatternKey = tuple[PatternType, str]


@dataclass(slots=True, eq=False)
class _TypeIndex:
    """The ACLs of one resource type."""

    literal: dict[str, Pattern] = field(default_factory=dict)
    prefixed: dict[str, Pattern] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    """How many prefixed patterns have a name of this length. No entry is 0."""
    by_principal: dict[Principal, dict[PatternKey, dict[str, Entry]]] = field(default_factory=dict)
    """The same entries, by principal first: for the question about any resource."""

    def table(self, pattern_type: PatternType) -> dict[str, Pattern]:
        return self.literal if pattern_type is PatternType.LITERAL else self.prefixed


class AclIndex:
    """A set of ACL bindings. `generation` grows with every change."""

    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self.generation = 0
        self._count = 0
        self._types = {type_: _TypeIndex() for type_ in ResourceType}
        for acl in acls:
            self.add(acl)

    def __len__(self) -> int:
        return self._count

    def add(self, acl: AclBinding) -> None:
        """Adds a binding that `binding_refusal` accepts. Does nothing if it is there."""
        index = self._types[acl.resource_type]
        table = index.table(acl.pattern_type)
        pattern = table.get(acl.resource_name)
        if pattern is None:
            pattern = table[acl.resource_name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                index.lengths[len(acl.resource_name)] += 1
        hosts = pattern.setdefault(acl.principal, {})
        present = hosts.get(acl.host, _NONE).acls
        if acl in present:
            return
        hosts[acl.host] = Entry((*present, acl))
        index.by_principal.setdefault(acl.principal, {})[acl.pattern_type, acl.resource_name] = hosts
        self._changed(1)

    def remove(self, acl: AclBinding) -> None:
        """Does nothing if the binding is not there."""
        index = self._types[acl.resource_type]
        pattern = index.table(acl.pattern_type).get(acl.resource_name, {})
        hosts = pattern.get(acl.principal, {})
        present = hosts.get(acl.host, _NONE).acls
        if acl not in present:
            return
        left = tuple(other for other in present if other != acl)
        if left:
            hosts[acl.host] = Entry(left)
        else:
            del hosts[acl.host]
            self._prune(index, acl, pattern)
        self._changed(-1)

    def _changed(self, by: int) -> None:
        self._count += by
        self.generation += 1

    @staticmethod
    def _prune(index: _TypeIndex, acl: AclBinding, pattern: Pattern) -> None:
        """Removes what is empty after the last ACL of a principal and a host in the pattern."""
        if pattern[acl.principal]:
            return
        del pattern[acl.principal]
        of_principal = index.by_principal[acl.principal]
        del of_principal[acl.pattern_type, acl.resource_name]
        if not of_principal:
            del index.by_principal[acl.principal]
        if pattern:
            return
        del index.table(acl.pattern_type)[acl.resource_name]
        if acl.pattern_type is PatternType.PREFIXED:
            length = len(acl.resource_name)
            index.lengths[length] -= 1
            if not index.lengths[length]:
                del index.lengths[length]

    def patterns(self, resource_type: ResourceType, name: str) -> Iterator[Pattern]:
        """The patterns that apply to the resource: its own name, `*`, and every prefix of its name."""
        index = self._types[resource_type]
        if name != WILDCARD_RESOURCE and (pattern := index.literal.get(name)) is not None:
            yield pattern
        if (pattern := index.literal.get(WILDCARD_RESOURCE)) is not None:
            yield pattern
        for length in index.lengths:
            if length <= len(name) and (pattern := index.prefixed.get(name[:length])) is not None:
                yield pattern

    def patterns_of(
        self, resource_type: ResourceType, principal: Principal, host: str
    ) -> Iterator[tuple[PatternKey, Entry]]:
        """The patterns of the type in which an ACL names the principal or `User:*`, and the host or `*`."""
        index = self._types[resource_type]
        for named in {principal, ANY_PRINCIPAL}:
            for key, hosts in index.by_principal.get(named, {}).items():
                for entry in _of_host(hosts, host):
                    yield key, entry

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that the filter selects. It looks at every ACL."""
        return [acl for acl in self if wanted.matches(acl)]

    def __iter__(self) -> Iterator[AclBinding]:
        for index in self._types.values():
            for patterns in index.by_principal.values():
                for hosts in patterns.values():
                    for entry in hosts.values():
                        yield from entry.acls


def entries(pattern: Pattern, principal: Principal, host: str) -> Iterator[Entry]:
    """The entries of a pattern that apply to the principal at the host: four at most."""
    for named in {principal, ANY_PRINCIPAL}:
        if (hosts := pattern.get(named)) is not None:
            yield from _of_host(hosts, host)


def _of_host(hosts: dict[str, Entry], host: str) -> Iterator[Entry]:
    for named in {host, ANY_HOST}:
        if (entry := hosts.get(named)) is not None:
            yield entry

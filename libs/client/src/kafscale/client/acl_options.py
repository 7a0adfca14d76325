"""What the options of `kafscale acls` mean, as kafka-acls understands them (AclCommand of Apache Kafka 4.3). Pure.

An ACL is made for each pattern, principal, host and operation. Without hosts it is `*`, without operations ALL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from kafscale.access.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.principals import ANY_HOST, Principal, PrincipalWrong, parse_principal

_PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


class WrongOptions(ValueError):
    """The options contradict each other, or something is missing. The text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that the options name. None: without the option."""

    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    transactional_ids: Sequence[str] | None = None
    cluster: bool = False
    pattern: PatternType = PatternType.LITERAL

    def named(self) -> Iterator[tuple[ResourceType, PatternType, str]]:
        yield from ((ResourceType.TOPIC, self.pattern, name) for name in self.topics or ())
        yield from ((ResourceType.GROUP, self.pattern, name) for name in self.groups or ())
        yield from (
            (ResourceType.TRANSACTIONAL_ID, self.pattern, name) for name in self.transactional_ids or ()
        )
        if self.cluster:
            yield ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME


@dataclass(frozen=True, slots=True)
class Entries:
    """Who may do what, or may not. None: without the option."""

    allow_principals: Sequence[str] | None = None
    deny_principals: Sequence[str] | None = None
    allow_hosts: Sequence[str] | None = None
    deny_hosts: Sequence[str] | None = None
    operations: Sequence[str] | None = None
    producer: bool = False
    consumer: bool = False


def bindings_of(resources: Resources, entries: Entries) -> list[AclBinding]:
    """The ACLs that the options name, each once. Raises WrongOptions."""
    _check(resources, entries)
    found: dict[AclBinding, None] = {}
    for resource_type, pattern_type, name in resources.named():
        operations = list(_operations(resource_type, entries))
        for permission, principals, hosts in (
            (Permission.ALLOW, entries.allow_principals, entries.allow_hosts),
            (Permission.DENY, entries.deny_principals, entries.deny_hosts),
        ):
            for principal, host, operation in product(principals or (), hosts or (ANY_HOST,), operations):
                acl = AclBinding(
                    resource_type=resource_type,
                    pattern_type=pattern_type,
                    resource_name=name,
                    principal=_principal(principal),
                    host=host,
                    operation=operation,
                    permission=permission,
                )
                found[acl] = None
    return list(found)


def filters_to_remove(resources: Resources, entries: Entries) -> list[AclFilter]:
    """Without entries everything on the resources, else exactly the ACLs that the options name. Raises WrongOptions."""
    _check_resources(resources)
    if entries == Entries():
        return filters_of(resources)
    return [AclFilter.of(acl) for acl in bindings_of(resources, entries)]


def filters_of(resources: Resources, principals: Sequence[str] = ()) -> list[AclFilter]:
    """What `list` and `remove` select: the patterns that are named, or everything, of these principals if any."""
    patterns: list[tuple[ResourceType, PatternType, str | None]] = [*resources.named()]
    if not patterns:
        patterns = [(ResourceType.ANY, PatternType.ANY, None)]
    return [
        AclFilter(
            resource_type=resource_type, pattern_type=pattern_type, resource_name=name, principal=principal
        )
        for resource_type, pattern_type, name in patterns
        for principal in (principals or (None,))
    ]


def _check_resources(resources: Resources) -> None:
    if next(resources.named(), None) is None:
        raise WrongOptions("name a resource: --topic, --group, --transactional-id or --cluster")


def _check(resources: Resources, entries: Entries) -> None:
    _check_resources(resources)
    if not entries.allow_principals and not entries.deny_principals:
        raise WrongOptions("name who: --allow-principal or --deny-principal")
    if entries.allow_hosts and not entries.allow_principals:
        raise WrongOptions("--allow-host needs --allow-principal")
    if entries.deny_hosts and not entries.deny_principals:
        raise WrongOptions("--deny-host needs --deny-principal")
    if resources.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise WrongOptions("an ACL is literal or prefixed")
    if (entries.producer or entries.consumer) and (entries.operations or entries.deny_principals):
        raise WrongOptions(
            "--producer and --consumer allow fixed operations: leave out --operation and --deny-*"
        )
    if entries.producer and not resources.topics:
        raise WrongOptions("--producer needs --topic")
    if entries.consumer and not (resources.topics and resources.groups):
        raise WrongOptions("--consumer needs --topic and --group")


def _operations(resource_type: ResourceType, entries: Entries) -> Iterator[Operation]:
    if entries.producer or entries.consumer:
        yield from _PRODUCER.get(resource_type, ()) if entries.producer else ()
        yield from _CONSUMER.get(resource_type, ()) if entries.consumer else ()
        return
    for text in entries.operations or ("all",):
        operation = operation_named(text)
        if operation is not Operation.ALL and operation not in SUPPORTED_OPERATIONS[resource_type]:
            names = ", ".join(sorted(each.name.lower() for each in SUPPORTED_OPERATIONS[resource_type]))
            raise WrongOptions(f"a {resource_type.name.lower()} has no operation {text}; it has {names}")
        yield operation


def operation_named(text: str) -> Operation:
    """`DescribeConfigs`, `describe_configs` and `describe-configs` are one name. Raises WrongOptions."""
    plain = text.replace("_", "").replace("-", "").lower()
    for operation in Operation:
        if operation > Operation.ANY and operation.name.replace("_", "").lower() == plain:
            return operation
    raise WrongOptions(f"there is no operation {text}")


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text)
    except PrincipalWrong as wrong:
        raise WrongOptions(f"a principal has the form User:name, not {text}") from wrong

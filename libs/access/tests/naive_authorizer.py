"""A second authorizer, which looks at every ACL for every question. Written from Kafka's rules, not from the index."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal

IMPLIES_DESCRIBE = {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
IMPLIES_DESCRIBE_CONFIGS = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}


@dataclass(frozen=True)
class NaiveAuthorizer:
    acls: Collection[AclBinding]
    super_users: Collection[Principal] = ()
    default: bool = False

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        applying = [acl for acl in self.acls if acl.resource_type is resource_type and applies(acl, name)]
        if not applying:
            return self.default
        results = {result(acl, principal, host, operation) for acl in applying}
        return Permission.DENY not in results and Permission.ALLOW in results

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        mine = [
            acl
            for acl in self.acls
            if acl.resource_type is resource_type
            and acl.host in (host, "*")
            and acl.principal in (principal, "User:*")
            and acl.operation in (operation, Operation.ALL)
        ]
        allowing = [acl for acl in mine if acl.permission is Permission.ALLOW]
        denying = [acl for acl in mine if acl.permission is Permission.DENY]
        if any(acl.is_wildcard for acl in denying):
            return False
        if any(acl.is_wildcard for acl in allowing):
            return True
        return any(not any(covers(deny, allow) for deny in denying) for allow in allowing)


def applies(acl: AclBinding, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def result(acl: AclBinding, principal: Principal, host: str, operation: Operation) -> Permission | None:
    if acl.principal not in (principal, "User:*") or acl.host not in (host, "*"):
        return None
    if acl.operation is Operation.ALL:
        return acl.permission
    named = {acl.operation}
    if acl.permission is Permission.ALLOW and acl.operation in IMPLIES_DESCRIBE:
        named.add(Operation.DESCRIBE)
    if acl.permission is Permission.ALLOW and acl.operation in IMPLIES_DESCRIBE_CONFIGS:
        named.add(Operation.DESCRIBE_CONFIGS)
    return acl.permission if operation in named else None


def covers(deny: AclBinding, allow: AclBinding) -> bool:
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name

"""ACL bindings and filters, with the codes, the matching and the validation of Apache Kafka 4.3.

A binding is a resource pattern (type, name, LITERAL or PREFIXED) with an entry (principal, host, operation,
permission). Sources: org.apache.kafka.common.acl, org.apache.kafka.common.resource, and AclApis and AclControlManager
for validation. Kafka does not check that an operation fits the resource type; only its tool kafka-acls does, with the
sets of AclEntry.supportedOperations, which `SUPPORTED_OPERATIONS` repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Self

from kafscale.access.principals import Principal
from kafscale.wire.errors import ErrorCode, Refusal

WILDCARD_RESOURCE: Final = "*"
"""As the name of a LITERAL pattern: every resource of the type."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class _Code(IntEnum):
    """A code of the protocol. Codes that Kafka does not know are UNKNOWN, as in its `fromCode`."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) else None


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    """ANY is for filters alone. ALL in a binding means every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15  # KIP-939


class Permission(_Code):
    """ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = MappingProxyType(
    {
        ResourceType.TOPIC: frozenset(
            {
                Operation.READ,
                Operation.WRITE,
                Operation.CREATE,
                Operation.DESCRIBE,
                Operation.DELETE,
                Operation.ALTER,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
            }
        ),
        ResourceType.GROUP: frozenset(
            {
                Operation.READ,
                Operation.DESCRIBE,
                Operation.DELETE,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
            }
        ),
        ResourceType.CLUSTER: frozenset(
            {
                Operation.CREATE,
                Operation.CLUSTER_ACTION,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
                Operation.IDEMPOTENT_WRITE,
                Operation.ALTER,
                Operation.DESCRIBE,
            }
        ),
        ResourceType.TRANSACTIONAL_ID: frozenset(
            {Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}
        ),
        ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
        ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
    }
)
"""The operations that mean something for a type (AclEntry.supportedOperations). `authorized_operations` show these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """One ACL. Equal bindings are one ACL: to create it twice changes nothing.

    The fields hold what the client sent. `binding_refusal` checks them.
    """

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: Principal
    host: str
    operation: Operation
    permission: Permission

    @property
    def is_wildcard(self) -> bool:
        """True if it applies to every resource of its type."""
        return self.pattern_type is PatternType.LITERAL and self.resource_name == WILDCARD_RESOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """What DescribeAcls and DeleteAcls select. None and ANY select everything."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @classmethod
    def of(cls, acl: AclBinding) -> AclFilter:
        """It selects this ACL alone."""
        return cls(
            resource_type=acl.resource_type,
            pattern_type=acl.pattern_type,
            resource_name=acl.resource_name,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission=acl.permission,
        )

    def matches(self, acl: AclBinding) -> bool:
        """True if both the pattern and the entry match (AclBindingFilter.matches)."""
        return self._matches_pattern(acl) and self._matches_entry(acl)

    def _matches_pattern(self, acl: AclBinding) -> bool:
        """ResourcePatternFilter.matches. MATCH selects the patterns that apply to a resource of the filter's name."""
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            # With MATCH too: a name is a prefix of itself.
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.is_wildcard

    def _matches_entry(self, acl: AclBinding) -> bool:
        """AccessControlEntryFilter.matches. Texts are compared as they are: the host `*` selects only the host `*`."""
        return (
            (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )


def binding_refusal(acl: AclBinding) -> Refusal | None:
    """Why CreateAcls refuses the binding, or None: INVALID_REQUEST as AclApis and AclControlManager.validateNewAcl."""
    sentence = _pattern_fault(acl) or _entry_fault(acl)
    return None if sentence is None else Refusal(code=ErrorCode.INVALID_REQUEST, message=sentence)


def _pattern_fault(acl: AclBinding) -> str | None:
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    return None


def _entry_fault(acl: AclBinding) -> str | None:
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def filter_refusal(wanted: AclFilter) -> Refusal | None:
    """Why DescribeAcls and DeleteAcls refuse the filter, or None (AclControlManager.validateFilter)."""
    if wanted.resource_type is ResourceType.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        return Refusal(code=ErrorCode.INVALID_REQUEST, message="Unknown patternFilter.")
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return Refusal(code=ErrorCode.INVALID_REQUEST, message="Unknown entryFilter.")
    return None

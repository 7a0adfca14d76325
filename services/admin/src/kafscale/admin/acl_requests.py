"""ACLs and filters of requests as values, with the errors of Apache Kafka's AclApis and AclControlManager. Pure."""

from __future__ import annotations

from typing import Final, Protocol

from kafscale.access.acl import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_refusal,
    filter_refusal,
)
from kafscale.access.principals import Principal
from kafscale.admin.plan import Refused
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_acls

TEXT_CHARS_MAX: Final = 1_024
"""Of a resource name, a principal or a host. Every service keeps all ACLs in memory."""
ENTRY_BYTES: Final = 64
"""Of an ACL on the wire, at most, without its texts."""


class FilterRequest(Protocol):
    """A filter as DescribeAcls and DeleteAcls name it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def binding_of(creation: create_acls.CreateAclsRequestAclCreation) -> AclBinding | Refused:
    acl = AclBinding(
        resource_type=ResourceType(creation.resource_type),
        pattern_type=PatternType(creation.resource_pattern_type),
        resource_name=creation.resource_name,
        principal=Principal(creation.principal),
        host=creation.host,
        operation=Operation(creation.operation),
        permission=Permission(creation.permission_type),
    )
    refused = binding_refusal(acl)
    if refused is not None:
        return Refused(refused.code, refused.message)
    if max(map(len, (acl.resource_name, acl.principal, acl.host))) > TEXT_CHARS_MAX:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"A resource name, a principal or a host has more than {TEXT_CHARS_MAX} characters.",
        )
    return acl


def filter_of(request: FilterRequest) -> AclFilter | Refused:
    wanted = AclFilter(
        resource_type=ResourceType(request.resource_type_filter),
        pattern_type=PatternType(request.pattern_type_filter),
        resource_name=request.resource_name_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=Operation(request.operation),
        permission=Permission(request.permission_type),
    )
    refused = filter_refusal(wanted)
    return wanted if refused is None else Refused(refused.code, refused.message)


def size_of(acl: AclBinding) -> int:
    """Its bytes in an answer, at most."""
    return ENTRY_BYTES + len(f"{acl.resource_name}{acl.principal}{acl.host}".encode())

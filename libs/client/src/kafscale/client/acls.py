"""ACLs, as AdminClient lists, creates and deletes them. It does not know the types USER and DELEGATION_TOKEN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from confluent_kafka import admin
from kafscale.access.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal
from kafscale.client.admin_client import Client, changing

_WHAT = "the ACLs"


def list_acls(client: Client, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """The ACLs that one of the filters selects, each once, in the order of their fields."""
    found: set[AclBinding] = set()
    for wanted in filters:
        found.update(map(_binding, client.ask_one(_WHAT, partial(_describing, client, wanted))))
    return in_order(found)


def _describing(client: Client, wanted: AclFilter) -> dict[str, Future[Iterable[admin.AclBinding]]]:
    return {"": client.admin.describe_acls(_filter(wanted))}


@changing()
def create_acls(client: Client, acls: Sequence[AclBinding]) -> None:
    """Those that exist already are left as they are."""
    client.ask(
        lambda acl: f"the ACL of {acl.principal} on '{acl.name}'",
        lambda: client.admin.create_acls(list(map(_theirs, acls))),
        _WHAT,
    )


def _theirs(acl: AclBinding) -> admin.AclBinding:
    return admin.AclBinding(
        admin.ResourceType(int(acl.resource_type)),
        acl.resource_name,
        admin.ResourcePatternType(int(acl.pattern_type)),
        acl.principal,
        acl.host,
        admin.AclOperation(int(acl.operation)),
        admin.AclPermissionType(int(acl.permission)),
    )


@changing()
def delete_acls(client: Client, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """The ACLs that were deleted."""
    answers = client.ask(
        lambda _: _WHAT, lambda: client.admin.delete_acls(list(map(_filter, filters))), _WHAT
    )
    return in_order({_binding(acl) for deleted in answers.values() for acl in deleted})


def in_order(acls: Iterable[AclBinding]) -> list[AclBinding]:
    return sorted(
        acls,
        key=lambda acl: (
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        ),
    )


def _filter(wanted: AclFilter) -> admin.AclBindingFilter:
    """The stub of confluent-kafka lacks None, which selects everything."""
    return admin.AclBindingFilter(
        admin.ResourceType(int(wanted.resource_type)),
        wanted.resource_name,  # type: ignore[arg-type]
        admin.ResourcePatternType(int(wanted.pattern_type)),
        wanted.principal,  # type: ignore[arg-type]
        wanted.host,  # type: ignore[arg-type]
        admin.AclOperation(int(wanted.operation)),
        admin.AclPermissionType(int(wanted.permission)),
    )


def _binding(acl: admin.AclBinding) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType(acl.restype_int),
        pattern_type=PatternType(acl.resource_pattern_type_int),
        resource_name=acl.name,
        principal=Principal(acl.principal),
        host=acl.host,
        operation=Operation(acl.operation_int),
        permission=Permission(acl.permission_type_int),
    )

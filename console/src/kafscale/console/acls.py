"""ACLs as rows of the console, the recipes that make them, and why somebody may do something. Pure.

Law: the explanation decides as the front door's authorizer does, because it is that authorizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from kafscale.access.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.acl_index import IMPLIED, AclIndex, bit
from kafscale.access.authorizer import Authorizer, Rule, Verdict
from kafscale.access.principals import ANY_HOST, ANY_PRINCIPAL, Principal
from kafscale.client.acl_options import Entries, Resources, bindings_of
from kafscale.console.answers import Row

NO_ACL: Final = (
    "No ACL applies to it: only users of super.users may do this, or everyone, if the cluster has "
    "allow.everyone.if.no.acl.found."
)


class AclRow(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """In the words of `kafscale acls list`."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class Recipe(msgspec.Struct, forbid_unknown_fields=True):
    """What a producer to the topics, or a consumer of the topics in the groups needs; `all`: every operation on what is
    named; `custom`: these operations."""

    recipe: Literal["producer", "consumer", "all", "custom"]
    principal: str
    topics: list[str] = []
    groups: list[str] = []
    transactional_ids: list[str] = []
    cluster: bool = False
    prefixed: bool = False
    operations: list[str] = []
    deny: bool = False
    host: str = ANY_HOST


class Question(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    principal: str
    operation: Operation
    resource: ResourceType
    name: str
    host: str = ANY_HOST


def row_of(acl: AclBinding) -> AclRow:
    return AclRow(
        resource=acl.resource_type.name.lower(),
        name=acl.resource_name,
        pattern=acl.pattern_type.name.lower(),
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name.lower(),
        permission=acl.permission.name.lower(),
    )


def binding_of(row: AclRow) -> AclBinding:
    """Raises KeyError for a word that does not exist."""
    return AclBinding(
        resource_type=ResourceType[row.resource.upper()],
        pattern_type=PatternType[row.pattern.upper()],
        resource_name=row.name,
        principal=Principal(row.principal),
        host=row.host,
        operation=Operation[row.operation.upper()],
        permission=Permission[row.permission.upper()],
    )


def rows_of(recipe: Recipe) -> list[AclRow]:
    """Raises WrongOptions."""
    resources = Resources(
        topics=recipe.topics,
        groups=recipe.groups,
        transactional_ids=recipe.transactional_ids,
        cluster=recipe.cluster,
        pattern=PatternType.PREFIXED if recipe.prefixed else PatternType.LITERAL,
    )
    who, hosts = [recipe.principal], [recipe.host]
    operations = recipe.operations if recipe.recipe == "custom" else None
    entries = Entries(
        allow_principals=None if recipe.deny else who,
        deny_principals=who if recipe.deny else None,
        allow_hosts=None if recipe.deny else hosts,
        deny_hosts=hosts if recipe.deny else None,
        operations=operations,
        producer=recipe.recipe == "producer",
        consumer=recipe.recipe == "consumer",
    )
    return [row_of(acl) for acl in bindings_of(resources, entries)]


def explain(acls: Sequence[AclBinding], asked: Question) -> Row:
    """`allowed`, `sentence`, and `rows`: the ACLs that apply to the resource, each with `why`: it allows, it denies, or
    what it is for instead. Those that decide come first.

    Without any ACL on the resource, a setting of the front door decides, which no request shows: `allowed` is None.
    """
    name = CLUSTER_NAME if asked.resource is ResourceType.CLUSTER else asked.name
    on_it = AclFilter(resource_type=asked.resource, pattern_type=PatternType.MATCH, resource_name=name)
    applying = [acl for acl in acls if on_it.matches(acl)]
    verdict = Authorizer(AclIndex(applying)).explain(
        Principal(asked.principal), asked.host, asked.operation, asked.resource, name
    )
    rows = [msgspec.to_builtins(row_of(acl)) | {"why": _why(acl, asked)} for acl in applying]
    order = {"denies": 0, "allows": 1}
    rows.sort(key=lambda row: order.get(row["why"], 2))
    allowed, sentence = _outcome(verdict) if applying else (None, NO_ACL)
    return {"allowed": allowed, "sentence": sentence, "rows": rows}


def _outcome(verdict: Verdict) -> tuple[bool, str]:
    """Allowed or not, in a sentence; of a resource with ACLs."""
    if verdict.rule is not Rule.MATCHING_ACL:
        return False, "Denied: ACLs apply to it, and none allows this. Users of super.users may still do it."
    if verdict.allowed:
        return True, "Allowed by an ACL, and no ACL denies it."
    return False, "Denied by an ACL, whatever others allow. Users of super.users may still do it."


def _why(acl: AclBinding, asked: Question) -> str:
    allows = acl.permission is Permission.ALLOW
    if acl.principal not in (asked.principal, ANY_PRINCIPAL):
        return "for another principal"
    if acl.host not in (asked.host, ANY_HOST):
        return "for another host"
    implied = allows and IMPLIED.get(acl.operation, 0) & bit(asked.operation)
    if acl.operation not in (asked.operation, Operation.ALL) and not implied:
        return "for another operation"
    return "allows" if allows else "denies"

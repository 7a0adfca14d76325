"""What each role may do in the bucket: the one table, and the policies that S3 takes. Pure.

Law: a role sends no request outside of its row, and a role without a row sends none at all.

Facts of S3 that shape the table:

- Without `s3:ListBucket` S3 answers 403 for an object that is absent, instead of 404. A writer must know that its
  attempt is absent, so each role that reads objects may list the bucket. A condition on `s3:prefix` would not do: a
  GET has no prefix.
- A DELETE with an etag needs `s3:GetObject` as well, and a PUT with one too.
- `s3:PutObject` allows to replace objects. Each PUT of a service has a condition: that the name is free, or that it
  holds an attempt that no commit names.
- The probe at the start of a process that writes or deletes keeps its object below PROBE_PREFIX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from kafscale.storage.keys import OWN_TREE, Keyspace
from kafscale.storage.objects.probe import PROBE_PREFIX
from kafscale.storage.rights import Role

POLICY_VERSION: Final = "2012-10-17"
"""Of the policy language."""


class Action(Enum):
    """The value is S3's name of the action."""

    LIST = "s3:ListBucket"
    GET = "s3:GetObject"  # HEAD too
    PUT = "s3:PutObject"
    DELETE = "s3:DeleteObject"


class Tree(Enum):
    """Names of objects, by their beginning. The value is the part below the namespace."""

    NAMESPACE = ""
    OWN = f"{OWN_TREE}/"
    BUNDLES = f"{OWN_TREE}/bundle/"
    SNAPSHOTS = f"{OWN_TREE}/producers/"
    DELETION_MARKS = f"{OWN_TREE}/deleted/"
    HISTORY = f"{OWN_TREE}/history/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one role. If it puts or deletes anything, it probes the store, and may do all that the probe does."""

    gets: tuple[Tree, ...] = ()
    puts: tuple[Tree, ...] = ()
    deletes: tuple[Tree, ...] = ()


TABLE: Final[Mapping[Role, Row]] = MappingProxyType(
    {
        Role.FRONTDOOR: Row(),
        Role.PRODUCE: Row(
            gets=(Tree.NAMESPACE,),
            puts=(Tree.NAMESPACE,),
            deletes=(Tree.BUNDLES, Tree.SNAPSHOTS),  # its settled bundles, and snapshots that no head names
        ),
        Role.FETCH: Row(gets=(Tree.NAMESPACE,)),
        Role.COORDINATOR: Row(),
        Role.ADMIN: Row(
            gets=(Tree.NAMESPACE,), puts=(Tree.DELETION_MARKS, Tree.HISTORY), deletes=(Tree.NAMESPACE,)
        ),
        Role.UPKEEP: Row(gets=(Tree.NAMESPACE,), puts=(Tree.OWN,), deletes=(Tree.NAMESPACE,)),
        Role.OPERATOR: Row(gets=(Tree.NAMESPACE,)),
    }
)


class StoreUse(Enum):
    """What a process does with the store, and so how it probes the store at its start."""

    NONE = auto()
    READ = auto()
    CHANGE = auto()


def use_of(role: str) -> StoreUse:
    """CHANGE for a process that is none of the roles."""
    row = {str(each): row for each, row in TABLE.items()}.get(role)
    if row is None or row.puts or row.deletes:
        return StoreUse.CHANGE
    return StoreUse.READ if row.gets else StoreUse.NONE


@dataclass(frozen=True, slots=True)
class Grant:
    """The objects whose names begin with `prefix`. LIST is of the whole bucket: its prefix is ""."""

    action: Action
    prefix: str

    def allows(self, action: Action, key: str) -> bool:
        return action is self.action and key.startswith(self.prefix)


def grants_of(keys: Keyspace, role: Role) -> tuple[Grant, ...]:
    row = TABLE[role]
    trees = {Action.GET: row.gets, Action.PUT: row.puts, Action.DELETE: row.deletes}
    found = [
        Grant(action, f"{keys.namespace}/{tree.value}") for action, some in trees.items() for tree in some
    ]
    if use_of(role) is StoreUse.CHANGE:
        found += (Grant(action, PROBE_PREFIX) for action in trees)
    return (Grant(Action.LIST, ""), *found) if found else ()


def policy_of(keys: Keyspace, role: Role, bucket: str) -> dict[str, object] | None:
    """The IAM policy in its JSON form. None: the role needs no access to the bucket."""
    statements = [_statement(grant, f"arn:aws:s3:::{bucket}") for grant in grants_of(keys, role)]
    return {"Version": POLICY_VERSION, "Statement": _joined(statements)} if statements else None


def _statement(grant: Grant, bucket: str) -> tuple[str, str]:
    """Action and resource."""
    return grant.action.value, bucket if grant.action is Action.LIST else f"{bucket}/{grant.prefix}*"


def _joined(statements: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """One statement for each action."""
    resources: dict[str, list[str]] = {}
    for action, resource in statements:
        resources.setdefault(action, []).append(resource)
    return [
        {"Effect": "Allow", "Action": action, "Resource": some if len(some) > 1 else some[0]}
        for action, some in resources.items()
    ]

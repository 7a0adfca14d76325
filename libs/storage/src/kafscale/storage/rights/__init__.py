"""What each role may do at etcd and at the object store: two tables, from which users, roles and policies are made."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The six kinds of processes, and `operator`: commands that look at a cluster, and `kafscale settle`."""

    FRONTDOOR = "frontdoor"
    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATOR = "coordinator"
    ADMIN = "admin"
    UPKEEP = "upkeep"
    OPERATOR = "operator"


INSTANCES = tuple(role for role in Role if role is not Role.OPERATOR)
"""The roles that register in etcd."""

"""What each role may read and write in etcd: the one table. Pure.

Law: a role has a right only if its code uses it, and the whole system works with one etcd user per role.

Facts of etcd that shape the table:

- A right is for a range of keys: READ, WRITE or both. There is none for deletions alone, so the admin, which deletes
  heads, could also write them.
- A compare in a transaction needs READ of its key.
- A watch or a read of a range needs one right, or adjacent ones, for the whole range. Fetch watches `m/` to the end
  of `p/` as one range, so it can read `node/` and `o/`, which lie between them.
- There are no rights for leases. Every user may grant leases, and keep any lease alive whose id it knows. Only a user
  who may write all keys of a lease may revoke it.
- Compaction, defragmentation and alarms are for the user root (`kafscale etcd-repair`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.rights import INSTANCES, Role


class Kind(Enum):
    """The kinds of keys (`keys.py`) with rights of their own. The value is the key, or the prefix, below the root.

    `live/` and `node/` have rights for each role below them.
    """

    CLUSTER = "cluster"
    TOPICS = "t/"
    HEADS = "p/"
    METAS = "m/"
    OWNERS = "o/"
    EPOCH_FLOORS = "e/"
    PRODUCER_IDS = "pid/"
    SLOT_CLAIMS = "cs/"
    GROUPS = "g/"
    OFFSETS = "c/"
    PENDING_OFFSETS = "cp/"
    TRANSACTIONS = "x/"
    GROUP_CONFIGS = "gc/"
    JOB_RUNS = "job/"
    JOB_PLACES = "job-place/"
    PASSES = "pass/"
    SETTLE_REQUESTS = "settle/"
    ACLS = "acl/"
    QUOTAS = "quota/"
    USERS = "user/"
    DECOY_KEY = "secret/decoy-key"
    WITNESSES = "h/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one role. Each instance also reads and writes `live/` and `node/` of its own role, and reads `cluster`."""

    reads: tuple[Kind, ...] = ()
    writes: tuple[Kind, ...] = ()
    live: tuple[Role, ...] = ()
    """The other roles whose instances it watches."""
    span: tuple[Kind, Kind] | None = None
    """The first and the last kind of a range that it watches as one."""


TABLE: Final[Mapping[Role, Row]] = MappingProxyType(
    {
        Role.FRONTDOOR: Row(
            reads=(
                Kind.TOPICS,
                Kind.OWNERS,
                Kind.SLOT_CLAIMS,
                Kind.ACLS,
                Kind.QUOTAS,
                Kind.USERS,
                Kind.DECOY_KEY,
            ),
            # The first front door with logins draws the key.
            writes=(Kind.DECOY_KEY,),
            live=(Role.PRODUCE, Role.FETCH, Role.COORDINATOR, Role.ADMIN),
        ),
        Role.PRODUCE: Row(
            reads=(
                Kind.TOPICS,
                Kind.HEADS,
                Kind.METAS,
                Kind.OWNERS,
                # It asks the coordinators of transactional ids.
                Kind.SLOT_CLAIMS,
                Kind.SETTLE_REQUESTS,
                Kind.ACLS,
                Kind.WITNESSES,
            ),
            writes=(Kind.HEADS, Kind.METAS, Kind.OWNERS, Kind.WITNESSES),
            live=(Role.COORDINATOR,),
        ),
        Role.FETCH: Row(reads=(Kind.TOPICS, Kind.ACLS), span=(Kind.METAS, Kind.HEADS)),
        Role.COORDINATOR: Row(
            reads=(
                Kind.TOPICS,
                # It ends transactions at the owners of partitions.
                Kind.OWNERS,
                Kind.PRODUCER_IDS,
                Kind.SLOT_CLAIMS,
                Kind.GROUPS,
                Kind.OFFSETS,
                Kind.PENDING_OFFSETS,
                Kind.TRANSACTIONS,
                Kind.GROUP_CONFIGS,
                Kind.ACLS,
            ),
            writes=(
                Kind.PRODUCER_IDS,
                Kind.SLOT_CLAIMS,
                Kind.GROUPS,
                Kind.OFFSETS,
                Kind.PENDING_OFFSETS,
                Kind.TRANSACTIONS,
            ),
            live=(Role.FRONTDOOR, Role.PRODUCE),
        ),
        Role.ADMIN: Row(
            reads=(
                Kind.TOPICS,
                Kind.HEADS,
                Kind.METAS,
                Kind.OWNERS,
                Kind.EPOCH_FLOORS,
                Kind.GROUP_CONFIGS,
                Kind.ACLS,
                Kind.QUOTAS,
                Kind.USERS,
                Kind.WITNESSES,
            ),
            writes=(
                Kind.CLUSTER,
                Kind.TOPICS,
                Kind.HEADS,
                Kind.METAS,
                Kind.OWNERS,
                Kind.EPOCH_FLOORS,
                Kind.GROUP_CONFIGS,
                Kind.PASSES,
                Kind.ACLS,
                Kind.QUOTAS,
                Kind.USERS,
                Kind.WITNESSES,
            ),
            live=(Role.FRONTDOOR,),
        ),
        Role.UPKEEP: Row(
            reads=(
                Kind.TOPICS,
                Kind.HEADS,
                Kind.METAS,
                Kind.GROUPS,
                Kind.OFFSETS,
                Kind.PASSES,
                Kind.JOB_RUNS,
                Kind.JOB_PLACES,
                Kind.WITNESSES,
            ),
            # It releases partitions whose owner is gone, with their owner records.
            writes=(
                Kind.HEADS,
                Kind.METAS,
                Kind.OWNERS,
                Kind.PASSES,
                Kind.JOB_RUNS,
                Kind.JOB_PLACES,
                Kind.WITNESSES,
            ),
            live=(Role.PRODUCE,),
        ),
        Role.OPERATOR: Row(
            reads=(
                Kind.CLUSTER,
                Kind.TOPICS,
                Kind.HEADS,
                Kind.METAS,
                Kind.OWNERS,
                Kind.SLOT_CLAIMS,
                Kind.GROUPS,
                Kind.OFFSETS,
                Kind.PENDING_OFFSETS,
                Kind.TRANSACTIONS,
                Kind.WITNESSES,
            ),
            writes=(Kind.SETTLE_REQUESTS,),
        ),
    }
)

FOR_TRANSACTIONS: Final[Mapping[Role, Row]] = MappingProxyType(
    {
        Role.PRODUCE: Row(reads=(Kind.SLOT_CLAIMS,), live=(Role.COORDINATOR,)),
        Role.COORDINATOR: Row(
            reads=(Kind.OWNERS, Kind.PENDING_OFFSETS, Kind.TRANSACTIONS),
            live=(Role.PRODUCE,),
        ),
    }
)
"""The part of the rows that the roles read for transactions alone: a version without them did not grant it."""


class Permission(Enum):
    """The value is etcdctl's word."""

    READ = "read"
    WRITE = "write"
    READWRITE = "readwrite"


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Keys from `first`, up to `end` but without it. b"": only the key `first`."""

    first: bytes
    end: bytes = b""


Rights = Mapping[KeyRange, Permission]


def identity(keys: Keyspace, role: Role) -> str:
    """The name of the role in etcd and of its user. Several clusters may share an etcd."""
    return f"kafscale-{keys.namespace}-{role}"


def rights_of(keys: Keyspace, role: Role) -> Rights:
    """All rights of the role, in the order of the keys."""
    row = TABLE[role]
    reads = {_range(keys, kind) for kind in row.reads} | {_under(keys.live_prefix(each)) for each in row.live}
    writes = {_range(keys, kind) for kind in row.writes}
    if row.span is not None:
        first, last = (_range(keys, kind) for kind in row.span)
        reads.add(KeyRange(first.first, last.end))
    if role in INSTANCES:
        own = {_under(keys.live_prefix(role)), _under(keys.nodes_prefix(role))}
        reads |= own | {_range(keys, Kind.CLUSTER)}
        writes |= own
    else:
        reads.add(_under(keys.live_prefix()))
    return {each: _permission(each in reads, each in writes) for each in sorted(reads | writes)}


def read_for_transactions(keys: Keyspace, role: Role) -> tuple[KeyRange, ...]:
    """What the role must be able to read before it takes part in transactions. Most roles need nothing more."""
    row = FOR_TRANSACTIONS.get(role, Row())
    return (
        *(_range(keys, kind) for kind in row.reads),
        *(_under(keys.live_prefix(each)) for each in row.live),
    )


def _range(keys: Keyspace, kind: Kind) -> KeyRange:
    key = keys.root() + kind.value.encode()
    return _under(key) if kind.value.endswith("/") else KeyRange(key)


def _under(prefix: bytes) -> KeyRange:
    return KeyRange(prefix, prefix_end(prefix))


def _permission(reads: bool, writes: bool) -> Permission:
    if reads and writes:
        return Permission.READWRITE
    return Permission.READ if reads else Permission.WRITE

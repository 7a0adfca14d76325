"""Whether this process may take part in transactions: its user in etcd may be from a version that had none.

Law: missing rights cost transactions, and nothing else. A view that etcd refuses ends its process, and a slot whose
keys cannot be read is never served, so the rights are tried before any of this is built. Without them the process
works as if `KAFSCALE_TRANSACTIONS` were 0: records and groups as before, and the answers to producers with a
transactional.id are those of a cluster that has none.
"""

from __future__ import annotations

from typing import Final

from kafscale.runtime.etcd_space import is_forbidden
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, Range
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import FOR_TRANSACTIONS, read_for_transactions

METRIC: Final = "transactions_without_rights"
REMEDY: Final = "run `kafscale etcd-roles --apply` of this version, then restart this process"


def needs_rights(role: str) -> bool:
    """Whether transactions need rights of this role. Only such a role has the metric."""
    return role in FOR_TRANSACTIONS


async def has_rights(etcd: EtcdClient, keyspace: Keyspace, role: str) -> bool:
    """Whether etcd lets this process read what transactions need. Raises EtcdError if etcd does not say."""
    ranges = read_for_transactions(keyspace, Role(role))
    try:
        await etcd.ranges([Range(each.first, each.end, limit=1, keys_only=True) for each in ranges])
    except EtcdRejected as refused:
        if not is_forbidden(refused):
            raise
        return False
    return True

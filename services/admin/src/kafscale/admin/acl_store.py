"""ACLs against etcd: created and deleted by compare-and-swap, up to 100 in a transaction.

Their number has a limit, because every service keeps all of them in memory. It is checked in the read before the write,
so admins that create ACLs at the same time may exceed it slightly. The record of an ACL that cannot be read is neither
replaced nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import structlog
from kafscale.access.acl import AclBinding
from kafscale.admin.errors import guarded
from kafscale.admin.plan import Refused
from kafscale.admin.topics import TOO_FULL
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.access_keys import CHANGES_MAX, Change, acl_hash, change_txn, count_read, counted
from kafscale.storage.access_records import decode_acl, encode_acl
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import EtcdClient, KeyValue, Range
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

_WHAT = "ACLs"
Outcomes = dict[AclBinding, Refused | None]
"""None: the ACL is there."""


class AclStore:
    def __init__(self, etcd: EtcdClient, view: AccessView, acls_max: int, space: EtcdSpace) -> None:
        self._etcd = etcd
        self._keys = view.keys
        self._view = view
        self._acls_max = acls_max
        self._space = space

    async def create(self, acls: Iterable[AclBinding]) -> Outcomes:
        """Creates those that are not there. The ACLs of one transaction are created together."""
        wanted = list(dict.fromkeys(acls))
        outcomes: Outcomes = {}
        for start in range(0, len(wanted), CHANGES_MAX):
            part = wanted[start : start + CHANGES_MAX]
            made = await guarded(swapped(_WHAT, partial(self._try_create, part)))
            outcomes |= made if isinstance(made, dict) else dict.fromkeys(part, made)
        return outcomes

    async def _try_create(self, part: Sequence[AclBinding]) -> Outcomes | None:
        keys = [self._keys.acl(acl) for acl in part]
        *found, family = await self._etcd.ranges([*map(Range, keys), count_read(self._keys.acls)])
        free = self._acls_max - counted(self._keys.acls, family)
        outcomes: Outcomes = {}
        changes = []
        for acl, key, one in zip(part, keys, found, strict=True):
            free -= not one.kvs
            outcomes[acl] = refused = self._refusal(acl, one.kvs[0] if one.kvs else None, free)
            if refused is None and not one.kvs:
                changes.append(Change(key, 0, encode_acl(acl)))
        if changes and not (await self._etcd.txn(change_txn(self._keys.acls, changes))).succeeded:
            return None
        if changes:
            log.info("ACLs created", acls=len(changes))
        return outcomes

    def _refusal(self, acl: AclBinding, stored: KeyValue | None, free: int) -> Refused | None:
        if stored is not None:
            try:
                decode_acl(acl_hash(acl), stored.value)
            except UnreadableValue as damage:
                return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The record of the ACL is damaged: {damage}")
            return None
        if free < 0:
            return Refused(
                ErrorCode.POLICY_VIOLATION, f"The cluster may have {self._acls_max} ACLs (KAFSCALE_ACLS_MAX)."
            )
        if not self._space.admits(Use.NEW, len(encode_acl(acl))):
            return Refused(ErrorCode.POLICY_VIOLATION, TOO_FULL)
        return None

    async def delete(self, acls: Iterable[AclBinding]) -> Refused | None:
        """Deletes those that are still there. After a refusal some of them may be deleted."""
        keys = [self._keys.acl(acl) for acl in dict.fromkeys(acls)]
        for start in range(0, len(keys), CHANGES_MAX):
            part = keys[start : start + CHANGES_MAX]
            done = await guarded(swapped(_WHAT, partial(self._try_delete, part)))
            if isinstance(done, Refused):
                return done
        return None

    async def _try_delete(self, keys: Sequence[bytes]) -> int | None:
        """An ACL that another admin has deleted has revision 0, and its deletion changes nothing."""
        await self._view.confirm()
        stored = self._view.views["acls"]
        changes = [Change(key, stored.revision_of(key), None) for key in keys]
        if not (await self._etcd.txn(change_txn(self._keys.acls, changes))).succeeded:
            return None
        log.info("ACLs deleted", acls=len(changes))
        return len(changes)
